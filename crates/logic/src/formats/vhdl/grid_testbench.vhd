library ieee;
use ieee.std_logic_1164.all;

entity @NAME_testbench is
end entity;

architecture test of @NAME_testbench is
    signal clk, load, enable : std_logic := '0';
    signal start, state : std_logic_vector(@TOP downto 0);
begin
    grid_i : entity work.@NAME_grid
        generic map (HEIGHT => @HEIGHT, WIDTH => @WIDTH, TORUS => @TORUS)
        port map (clk => clk, load => load, enable => enable, start => start, state => state);
    process
        variable errors : natural := 0;
        procedure check(expected : std_logic_vector(@TOP downto 0)) is
        begin
            wait for 1 ns;
            clk <= '1';
            wait for 1 ns;
            clk <= '0';
            wait for 1 ns;
            if state /= expected then
                errors := errors + 1;
            end if;
            load <= '0';
        end procedure;
    begin
        load <= '1';
        enable <= '1';
        start <= @START;
        check(@START);
@CHECKS        enable <= '0';
        check(@END);
        if errors = 0 then
            report "PASS";
        else
            report "FAIL: " & integer'image(errors) & " differences" severity failure;
        end if;
        wait;
    end process;
end architecture;
