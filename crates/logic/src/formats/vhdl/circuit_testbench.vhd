library ieee;
use ieee.std_logic_1164.all;

entity @NAME_testbench is
end entity;

architecture test of @NAME_testbench is
    signal given : std_logic_vector(0 to @INPUTS - 1);
    signal computed : std_logic_vector(0 to @OUTPUTS - 1);
begin
    circuit_i : entity work.@NAME@CONNECTIONS;
    process
        variable errors : natural := 0;
        procedure check(bits : std_logic_vector; expected : std_logic_vector) is
        begin
            given <= bits;
            wait for 1 ns;
            if computed /= expected then
                errors := errors + 1;
            end if;
        end procedure;
    begin
@CHECKS        if errors = 0 then
            report "PASS";
        else
            report "FAIL: " & integer'image(errors) & " differences" severity failure;
        end if;
        wait;
    end process;
end architecture;
