//! Parses arbitrary bytes as AIGER, ASCII or binary. A parsed circuit is written in both forms and parsed again.
#![no_main]

use gatework_logic::formats::aiger::{read_sequential, write_ascii, write_binary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = read_sequential(bytes) else { return };
    for written in [write_ascii(&read), write_binary(&read)] {
        let written = written.expect("a circuit that was read can be written");
        let again = read_sequential(&written).expect("a circuit that was written can be read");
        assert_eq!(again.latches, read.latches);
        let ports = |circuit: &gatework_logic::Circuit| (circuit.inputs(), circuit.outputs().len());
        assert_eq!(ports(&again.circuit), ports(&read.circuit));
        for value in [false, true] {
            let bits = vec![value; read.circuit.inputs()];
            assert_eq!(again.circuit.eval(&bits), read.circuit.eval(&bits));
        }
    }
});
