// A cell: takes `start` if `load`, else its new bits if `enable`.
module @_cell (
    input wire clk,
    input wire load,
    input wire enable,
    input wire [@TOP:0] start,
    input wire [@PATCH:0] patch,
    output reg [@TOP:0] state
);
    wire [@TOP:0] next;
    @_rule rule (.patch(patch), .next(next));
    always @@(posedge clk) begin
        if (load) state <= start;
        else if (enable) state <= next;
    end
endmodule

// A grid: channel c of cell (y, x) is bit (y * WIDTH + x) * @CHANNELS + c.
module @_grid #(
    parameter HEIGHT = @HEIGHT,
    parameter WIDTH = @WIDTH,
    parameter TORUS = @TORUS
) (
    input wire clk,
    input wire load,
    input wire enable,
    input wire [HEIGHT*WIDTH*@CHANNELS-1:0] start,
    output wire [HEIGHT*WIDTH*@CHANNELS-1:0] state
);
    genvar y, x, k;
    generate
        for (y = 0; y < HEIGHT; y = y + 1) begin : row
            for (x = 0; x < WIDTH; x = x + 1) begin : column
                wire [@PATCH:0] patch;
                for (k = 0; k < 9; k = k + 1) begin : neighbour
                    if (TORUS != 0 || (y + k / 3 >= 1 && y + k / 3 <= HEIGHT && x + k % 3 >= 1 && x + k % 3 <= WIDTH))
                        assign patch[k * @CHANNELS +: @CHANNELS] = state[(((y + k / 3 + HEIGHT - 1) % HEIGHT) * WIDTH
                            + (x + k % 3 + WIDTH - 1) % WIDTH) * @CHANNELS +: @CHANNELS];
                    else
                        assign patch[k * @CHANNELS +: @CHANNELS] = {@CHANNELS{1'b0}};
                end
                @_cell cell_i (
                    .clk(clk),
                    .load(load),
                    .enable(enable),
                    .start(start[(y * WIDTH + x) * @CHANNELS +: @CHANNELS]),
                    .patch(patch),
                    .state(state[(y * WIDTH + x) * @CHANNELS +: @CHANNELS])
                );
            end
        end
    endgenerate
endmodule

