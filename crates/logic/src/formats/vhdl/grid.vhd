-- A cell: takes start if load, else its new bits if enable.
library ieee;
use ieee.std_logic_1164.all;

entity @_cell is
    port (
        clk, load, enable : in std_logic;
        start : in std_logic_vector(@TOP downto 0);
        patch : in std_logic_vector(@PATCH downto 0);
        state : out std_logic_vector(@TOP downto 0)
    );
end entity;

architecture registers of @_cell is
    signal new_bits : std_logic_vector(@TOP downto 0);
begin
    rule_i : entity work.@_rule port map (patch => patch, new_bits => new_bits);
    process (clk)
    begin
        if rising_edge(clk) then
            if load = '1' then
                state <= start;
            elsif enable = '1' then
                state <= new_bits;
            end if;
        end if;
    end process;
end architecture;

-- A grid: channel c of cell (y, x) is bit (y * WIDTH + x) * @CHANNELS + c.
library ieee;
use ieee.std_logic_1164.all;

entity @_grid is
    generic (
        HEIGHT : positive := @HEIGHT;
        WIDTH : positive := @WIDTH;
        TORUS : boolean := @TORUS
    );
    port (
        clk, load, enable : in std_logic;
        start : in std_logic_vector(HEIGHT * WIDTH * @CHANNELS - 1 downto 0);
        state : out std_logic_vector(HEIGHT * WIDTH * @CHANNELS - 1 downto 0)
    );
end entity;

architecture cells of @_grid is
    signal current : std_logic_vector(HEIGHT * WIDTH * @CHANNELS - 1 downto 0);

    -- The first bit of neighbour k of cell (y, x), row by row; beyond the edge is the opposite edge.
    function neighbour(y, x, k : natural) return natural is
    begin
        return ((y + k / 3 + HEIGHT - 1) mod HEIGHT * WIDTH + (x + k mod 3 + WIDTH - 1) mod WIDTH) * @CHANNELS;
    end function;

    function is_inside(y, x, k : natural) return boolean is
    begin
        return TORUS or (y + k / 3 >= 1 and y + k / 3 <= HEIGHT and x + k mod 3 >= 1 and x + k mod 3 <= WIDTH);
    end function;
begin
    state <= current;
    rows : for y in 0 to HEIGHT - 1 generate
        columns : for x in 0 to WIDTH - 1 generate
            signal patch : std_logic_vector(@PATCH downto 0);
        begin
            neighbours : for k in 0 to 8 generate
                inside : if is_inside(y, x, k) generate
                    patch(k * @CHANNELS + @TOP downto k * @CHANNELS) <=
                        current(neighbour(y, x, k) + @TOP downto neighbour(y, x, k));
                end generate;
                outside : if not is_inside(y, x, k) generate
                    patch(k * @CHANNELS + @TOP downto k * @CHANNELS) <= (others => '0');
                end generate;
            end generate;
            cell_i : entity work.@_cell port map (
                clk => clk,
                load => load,
                enable => enable,
                start => start((y * WIDTH + x) * @CHANNELS + @TOP downto (y * WIDTH + x) * @CHANNELS),
                patch => patch,
                state => current((y * WIDTH + x) * @CHANNELS + @TOP downto (y * WIDTH + x) * @CHANNELS)
            );
        end generate;
    end generate;
end architecture;

