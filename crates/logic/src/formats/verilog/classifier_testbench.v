`ifdef GATEWORK_TESTBENCH
module @NAME_testbench;
    reg clk;
    reg [@INPUTS:0] given;
    wire [@LABEL:0] computed;
    integer errors;
    @NAME classifier_i (
@CONNECTIONS
    );
    always #5 clk = ~clk;
    task check(input [@INPUTS:0] in, input [@LABEL:0] expected);
        begin
            given = in;
            @WAIT
            if (computed !== expected) begin
                errors = errors + 1;
                $display("FAIL: %h gives class %0d instead of %0d", in, computed, expected);
            end
        end
    endtask
    initial begin
        errors = 0;
        clk = 0;
@CHECKS        if (errors == 0) $display("PASS");
        else $display("FAIL: %0d differences", errors);
        $finish;
    end
endmodule
`endif
