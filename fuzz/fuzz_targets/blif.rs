//! Parses arbitrary bytes as BLIF. A parsed circuit is written and parsed again.
#![no_main]

use gatework_logic::formats::blif::{read_sequential, write_sequential};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = read_sequential(bytes) else { return };
    let written = write_sequential(&read, "model");
    let again =
        read_sequential(written.as_bytes()).expect("a circuit that was read can be written and read again");
    assert_eq!(again.latches, read.latches);
    let ports = |circuit: &gatework_logic::Circuit| (circuit.inputs(), circuit.outputs().len());
    assert_eq!(ports(&again.circuit), ports(&read.circuit));
    for value in [false, true] {
        let bits = vec![value; read.circuit.inputs()];
        assert_eq!(again.circuit.eval(&bits), read.circuit.eval(&bits));
    }
});
