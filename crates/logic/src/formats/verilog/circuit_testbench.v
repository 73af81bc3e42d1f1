`ifdef GATEWORK_TESTBENCH
module @NAME_testbench;
    reg [@INPUTS:0] given;
    wire [@OUTPUTS:0] computed;
    integer errors;
    @NAME circuit_i (
@CONNECTIONS
    );
    task check(input [@INPUTS:0] in, input [@OUTPUTS:0] expected);
        begin
            given = in;
            #1;
            if (@DIFFERS) begin
                errors = errors + 1;
                $display("FAIL: %h gives %h instead of %h", in, computed, expected);
            end
        end
    endtask
    initial begin
        errors = 0;
@CHECKS        if (errors == 0) $display("PASS");
        else $display("FAIL: %0d differences", errors);
        $finish;
    end
endmodule
`endif
