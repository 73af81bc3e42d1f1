`ifdef GATEWORK_TESTBENCH
module @NAME_testbench;
    reg clk, load, enable;
    reg [@TOP:0] start;
    wire [@TOP:0] state;
    integer errors;
    @NAME_grid #(.HEIGHT(@HEIGHT), .WIDTH(@WIDTH), .TORUS(@TORUS)) grid_i (
        .clk(clk), .load(load), .enable(enable), .start(start), .state(state)
    );
    task check(input [@TOP:0] expected);
        begin
            #1 clk = 1;
            #1 clk = 0;
            #1;
            if (state !== expected) begin
                errors = errors + 1;
                $display("FAIL: %h instead of %h", state, expected);
            end
            load = 0;
        end
    endtask
    initial begin
        errors = 0;
        clk = 0;
        load = 1;
        enable = 1;
        start = @START;
        check(start);
@CHECKS        enable = 0;
        check(@END);
        if (errors == 0) $display("PASS");
        else $display("FAIL: %0d differences", errors);
        $finish;
    end
endmodule
`endif
