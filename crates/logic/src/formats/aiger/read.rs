//! Reader of AIGER files, ASCII and binary.
//!
//! The counts in the header are compared with the length of the file before memory is allocated for them. Errors have the
//! line and column in an ASCII file and the byte offset in a binary one.

use super::aig::{Aig, And};
use super::cursor::Cursor;
use crate::circuit::MAX_INPUTS;
use crate::formats::order::topological;
use crate::formats::sequential::Sequential;
use crate::formats::{self, FormatError};
use crate::literal::Literal;
use std::collections::HashMap;

/// The number of inputs that a binary file may declare beyond its length in bytes: inputs take no bytes.
const FREE_INPUTS: usize = 1 << 16;

/// Reads an AIGER file, ASCII or binary, with or without latches.
pub fn read_sequential(bytes: &[u8]) -> Result<Sequential, FormatError> {
    let mut cursor = Cursor { bytes, at: 0, ascii: !bytes.starts_with(b"aig") };
    let header = Header::read(&mut cursor)?;
    let mut body = if cursor.ascii {
        Body::read_ascii(&mut cursor, &header)?
    } else {
        Body::read_binary(&mut cursor, &header)?
    };
    body.aig.outputs.append(&mut body.next);
    let (inputs, latches, outputs) = (header.inputs, header.latches, header.outputs);
    let symbols = Symbols::read(&mut cursor, [inputs, latches, outputs])?;
    let circuit = symbols.name(body.aig.to_circuit()?, &header)?;
    Ok(Sequential { circuit, latches: body.start })
}

/// The counts in the header.
struct Header {
    /// The largest variable.
    variables: usize,
    inputs: usize,
    latches: usize,
    outputs: usize,
    ands: usize,
}

impl Header {
    fn read(cursor: &mut Cursor) -> Result<Header, FormatError> {
        if !cursor.bytes.starts_with(if cursor.ascii { b"aag " } else { b"aig " }) {
            return Err(cursor.error("an AIGER file begins with \"aag \" or \"aig \""));
        }
        cursor.at = 3;
        let mut counts = [0; 5];
        for (count, what) in counts.iter_mut().zip(["M", "I", "L", "O", "A"]) {
            cursor.space()?;
            *count = cursor.number(&format!("the count {what} of the header"))?;
        }
        while cursor.skip(b' ') {
            let begin = cursor.at;
            if cursor.number("a count of properties")? != 0 {
                let message = "bad states, constraints, justice and fairness are not read";
                return Err(cursor.error_at(begin, message));
            }
        }
        let [variables, inputs, latches, outputs, ands] = counts;
        let header = Header { variables, inputs, latches, outputs, ands };
        header.check(cursor)?;
        cursor.newline()?;
        Ok(header)
    }

    fn check(&self, cursor: &Cursor) -> Result<(), FormatError> {
        let Header { variables, inputs, latches, outputs, ands } = *self;
        let sum = inputs + latches + ands;
        if variables < sum || !cursor.ascii && variables != sum {
            let message = format!(
                "the largest variable is {variables}, but {inputs} inputs, {latches} latches and {ands} ANDs are {sum}"
            );
            return Err(cursor.error(message));
        }
        if inputs + latches > MAX_INPUTS {
            let message = format!("{inputs} inputs and {latches} latches are more than {MAX_INPUTS}");
            return Err(cursor.error(message));
        }
        // The minimum is 2 bytes for a literal or an AND, and none for an input of a binary file.
        let lines = latches + outputs + if cursor.ascii { inputs } else { 0 };
        let length = cursor.bytes.len();
        let free = if cursor.ascii { 0 } else { inputs.saturating_sub(FREE_INPUTS) };
        if 2 * (lines + ands) + free > length {
            let message = format!(
                "{inputs} inputs, {latches} latches, {outputs} outputs and {ands} ANDs do not fit into {length} bytes"
            );
            return Err(cursor.error(message));
        }
        Ok(())
    }
}

/// The part of a file between the header and the symbols.
struct Body {
    /// The graph; its outputs do not include the latches.
    aig: Aig,
    /// The next values of the latches.
    next: Vec<Literal>,
    /// The initial values of the latches.
    start: Vec<Option<bool>>,
}

/// Reads the optional initial value of a latch.
fn reset(cursor: &mut Cursor, latch: u32) -> Result<Option<bool>, FormatError> {
    if !cursor.skip(b' ') {
        return Ok(Some(false));
    }
    let begin = cursor.at;
    match cursor.number("a reset value")? {
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        value if value == latch as usize => Ok(None),
        value => Err(cursor.error_at(begin, format!("the reset value {value} is neither 0, 1 nor {latch}"))),
    }
}

impl Body {
    fn read_binary(cursor: &mut Cursor, header: &Header) -> Result<Body, FormatError> {
        let inputs = header.inputs + header.latches;
        let (mut next, mut start) = (Vec::new(), Vec::new());
        for latch in 0..header.latches {
            next.push(Literal(cursor.literal(header.variables)?));
            start.push(reset(cursor, 2 * (header.inputs + 1 + latch) as u32)?);
            cursor.newline()?;
        }
        let mut outputs = Vec::new();
        for _ in 0..header.outputs {
            outputs.push(Literal(cursor.literal(header.variables)?));
            cursor.newline()?;
        }
        let mut ands: Vec<And> = Vec::new();
        for i in 0..header.ands {
            let (begin, literal) = (cursor.at, 2 * (inputs + 1 + i) as u32);
            let below = |base: u32, difference: u32| {
                base.checked_sub(difference).ok_or_else(|| FormatError::Binary {
                    offset: begin,
                    message: format!("AND {i} reads a negative literal"),
                })
            };
            let a = below(literal, cursor.difference()?)?;
            let b = below(a, cursor.difference()?)?;
            if a == literal {
                return Err(cursor.error_at(begin, format!("AND {i} reads itself")));
            }
            ands.push([Literal(a), Literal(b)]);
        }
        Ok(Body { aig: Aig { inputs, ands, outputs }, next, start })
    }

    fn read_ascii(cursor: &mut Cursor, header: &Header) -> Result<Body, FormatError> {
        let mut variables = Variables::default();
        for _ in 0..header.inputs {
            variables.define(cursor, header)?;
            cursor.newline()?;
        }
        let (mut next, mut start) = (Vec::new(), Vec::new());
        for _ in 0..header.latches {
            let latch = variables.define(cursor, header)?;
            cursor.space()?;
            next.push(LocatedLiteral::read(cursor, header)?);
            start.push(reset(cursor, latch)?);
            cursor.newline()?;
        }
        let mut outputs = Vec::new();
        for _ in 0..header.outputs {
            outputs.push(LocatedLiteral::read(cursor, header)?);
            cursor.newline()?;
        }
        let mut operands = Vec::new();
        for _ in 0..header.ands {
            variables.define(cursor, header)?;
            cursor.space()?;
            let a = LocatedLiteral::read(cursor, header)?;
            cursor.space()?;
            operands.push([a, LocatedLiteral::read(cursor, header)?]);
            cursor.newline()?;
        }
        let order = variables.sort(cursor, header, &operands)?;
        let resolve = |place: &LocatedLiteral| variables.resolve(cursor, *place, &order.numbers);
        let ands = order.ands.iter().map(|&and| {
            let [a, b] = &operands[and];
            Ok([resolve(a)?, resolve(b)?])
        });
        let ands = ands.collect::<Result<Vec<And>, FormatError>>()?;
        let outputs = outputs.iter().map(resolve).collect::<Result<Vec<Literal>, _>>()?;
        let next = next.iter().map(resolve).collect::<Result<Vec<Literal>, _>>()?;
        Ok(Body { aig: Aig { inputs: header.inputs + header.latches, ands, outputs }, next, start })
    }
}

/// A literal of an ASCII file and its position.
#[derive(Clone, Copy)]
struct LocatedLiteral {
    literal: u32,
    at: usize,
}

impl LocatedLiteral {
    fn read(cursor: &mut Cursor, header: &Header) -> Result<LocatedLiteral, FormatError> {
        let at = cursor.at;
        Ok(LocatedLiteral { literal: cursor.literal(header.variables)?, at })
    }
}

/// The variables of an ASCII file, which may be numbered and ordered in any way.
#[derive(Default)]
struct Variables {
    /// The definition of each variable: inputs first, then latches, then ANDs.
    definitions: HashMap<u32, u32>,
    names: Vec<u32>,
}

/// ANDs in topological order.
struct Sorted {
    ands: Vec<usize>,
    /// The variable of each definition in that order.
    numbers: Vec<u32>,
}

impl Variables {
    fn define(&mut self, cursor: &mut Cursor, header: &Header) -> Result<u32, FormatError> {
        let begin = cursor.at;
        let literal = cursor.literal(header.variables)?;
        if literal < 2 || literal & 1 == 1 {
            return Err(
                cursor.error_at(begin, format!("{literal} cannot be defined: it is inverted or constant"))
            );
        }
        if self.definitions.insert(literal >> 1, self.names.len() as u32).is_some() {
            return Err(cursor.error_at(begin, format!("the literal {literal} is defined twice")));
        }
        self.names.push(literal);
        Ok(literal)
    }

    fn sort(
        &self,
        cursor: &Cursor,
        header: &Header,
        operands: &[[LocatedLiteral; 2]],
    ) -> Result<Sorted, FormatError> {
        let inputs = header.inputs + header.latches;
        let and = |place: &LocatedLiteral| {
            let definition = *self.definitions.get(&(place.literal >> 1))?;
            (definition as usize).checked_sub(inputs)
        };
        let reads = |i: usize| operands[i].iter().filter_map(and);
        let ands = topological(operands.len(), reads).map_err(|cycle| {
            let list: Vec<String> =
                cycle.iter().take(8).map(|&and| self.names[inputs + and].to_string()).collect();
            let message = format!("ANDs read each other in a cycle: {}", list.join(" <- "));
            cursor.error_at(operands[cycle[0]][0].at, message)
        })?;
        let mut numbers: Vec<u32> = (1..=(inputs + operands.len()) as u32).collect();
        for (place, &and) in ands.iter().enumerate() {
            numbers[inputs + and] = (inputs + 1 + place) as u32;
        }
        Ok(Sorted { ands, numbers })
    }

    /// Renumbers a literal.
    fn resolve(
        &self,
        cursor: &Cursor,
        place: LocatedLiteral,
        numbers: &[u32],
    ) -> Result<Literal, FormatError> {
        let LocatedLiteral { literal, at } = place;
        if literal < 2 {
            return Ok(Literal(literal));
        }
        let definition = self.definitions.get(&(literal >> 1));
        let undefined = || cursor.error_at(at, format!("the literal {literal} is read but not defined"));
        let variable = numbers[*definition.ok_or_else(undefined)? as usize];
        Ok(Literal::new(variable as usize, literal & 1 == 1))
    }
}

/// The names in a symbol table: of inputs, latches and outputs.
struct Symbols([Vec<Option<String>>; 3]);

impl Symbols {
    fn read(cursor: &mut Cursor, counts: [usize; 3]) -> Result<Symbols, FormatError> {
        let mut symbols = counts.map(|_| Vec::new());
        while let Some(kind) = cursor.peek() {
            if kind == b'c' {
                break; // The rest is a comment.
            }
            let Some(list) = [b'i', b'l', b'o'].iter().position(|&known| known == kind) else {
                return Err(cursor.error("a symbol (i, l or o) or a comment (c) is expected here"));
            };
            let begin = cursor.at;
            cursor.at += 1;
            let port = cursor.number("the number of a port")?;
            if port >= counts[list] {
                let message = format!("a name for {}{port}, but there are {}", kind as char, counts[list]);
                return Err(cursor.error_at(begin, message));
            }
            cursor.space()?;
            let at = cursor.at;
            let name = std::str::from_utf8(cursor.line())
                .map_err(|error| cursor.error_at(at + error.valid_up_to(), "the name is not UTF-8"))?;
            if symbols[list].is_empty() {
                symbols[list] = vec![None; counts[list]];
            }
            if symbols[list][port].replace(name.to_string()).is_some() {
                return Err(cursor.error_at(begin, format!("a second name for {}{port}", kind as char)));
            }
        }
        Ok(Symbols(symbols))
    }

    fn name(self, circuit: crate::Circuit, header: &Header) -> Result<crate::Circuit, FormatError> {
        let [inputs, latches, outputs] = self.0;
        if inputs.is_empty() && latches.is_empty() && outputs.is_empty() {
            return Ok(circuit);
        }
        let filled = |names: Vec<Option<String>>, count: usize, default: &dyn Fn(usize) -> String| {
            let names = names.into_iter().chain(std::iter::repeat(None)).take(count);
            names.enumerate().map(|(i, name)| name.unwrap_or_else(|| default(i))).collect::<Vec<String>>()
        };
        let mut inputs = filled(inputs, header.inputs, &|i| format!("x{i}"));
        let latches = filled(latches, header.latches, &|i| format!("x{}", header.inputs + i));
        let mut outputs = filled(outputs, header.outputs, &|i| format!("y{i}"));
        outputs.extend(latches.iter().map(|latch| format!("{latch}_next")));
        inputs.extend(latches);
        formats::named(circuit, inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::formats::aiger::{write_ascii, write_binary};
    use proptest::prelude::*;

    fn message(bytes: &[u8]) -> String {
        read_sequential(bytes).unwrap_err().to_string()
    }

    #[test]
    fn ands_may_come_in_any_order_and_with_any_numbers() {
        let text = b"aag 9 2 0 1 2\n18\n4\n11\n10 6 18\n6 4 5\ni1 b\nc\nanything\n";
        let sequential = read_sequential(text).unwrap();
        assert_eq!(sequential.circuit.eval(&[true, true]).unwrap(), [true]);
        assert_eq!(sequential.circuit.input_names(), ["x0", "b"]);
    }

    #[test]
    fn latches_are_the_last_ports() {
        let sequential = read_sequential(b"aag 3 1 2 1 0\n2\n4 2 1\n6 5 6\n7\nl0 first\n").unwrap();
        assert_eq!(sequential.latches, [Some(true), None]);
        let (outputs, next) = sequential.step(&[true], &[false, true]).unwrap();
        assert_eq!((outputs, next), (vec![false], vec![true, true]));
        assert_eq!(sequential.circuit.input_names(), ["x0", "first", "x2"]);
    }

    #[test]
    fn errors_name_the_place() {
        for (text, expected) in [
            (&b""[..], "line 1, column 1: an AIGER file begins with \"aag \" or \"aig \""),
            (b"aag 1 1", "line 1, column 8: a space is expected here, but the file ends; it may be cut off"),
            (b"aag 1 1 0 0 x\n", "line 1, column 13: the count A of the header is expected here"),
            (
                b"aag 0 1 0 0 0\n2\n",
                "line 1, column 14: the largest variable is 0, but 1 inputs, 0 latches and 0 ANDs are 1",
            ),
            (
                b"aag 4000000000 16000000 0 0 3000000000\n",
                "line 1, column 39: 16000000 inputs, 0 latches, 0 outputs and 3000000000 ANDs do not fit into 39 bytes",
            ),
            (
                b"aag 1 1 0 1 0\n2\n4\n",
                "line 3, column 1: the literal 4, but the header says that 1 is the largest variable",
            ),
            (b"aag 2 1 0 1 0\n2\n4\n", "line 3, column 1: the literal 4 is read but not defined"),
            (b"aag 2 2 0 0 0\n2\n2\n", "line 3, column 1: the literal 2 is defined twice"),
            (b"aag 1 1 0 0 0\n3\n", "line 2, column 1: 3 cannot be defined: it is inverted or constant"),
            (b"aag 2 0 0 0 2\n2 4 4\n4 2 2\n", "line 2, column 3: ANDs read each other in a cycle: 2 <- 4"),
            (b"aag 1 0 1 0 0\n2 3 4\n", "line 2, column 5: the reset value 4 is neither 0, 1 nor 2"),
            (
                b"aag 1 1 0 0 0 1\n2\n",
                "line 1, column 15: bad states, constraints, justice and fairness are not read",
            ),
            (b"aag 1 1 0 0 0\n2\ni1 a\n", "line 3, column 1: a name for i1, but there are 1"),
            (b"aag 1 1 0 0 0\n2\ni0 a\ni0 b\n", "line 4, column 1: a second name for i0"),
            (
                b"aag 1 1 0 0 0\n2\nx\n",
                "line 3, column 1: a symbol (i, l or o) or a comment (c) is expected here",
            ),
            (
                b"aig 3 2 0 1 1\n7\n\x02",
                "byte 17: an AND is expected here, but the file ends; it may be cut off",
            ),
            (b"aig 3 2 0 1 1\n7\n\x00\x02", "byte 16: AND 0 reads itself"),
            (b"aig 3 2 0 1 1\n7\n\x02\x05", "byte 16: AND 0 reads a negative literal"),
            (b"aig 3 2 0 1 1\n7\n\xff\xff\xff\xff\xff\x01", "byte 16: a difference beyond 32 bits"),
            (
                b"aig 16000000 16000000 0 0 0\n",
                "byte 27: 16000000 inputs, 0 latches, 0 outputs and 0 ANDs do not fit into 28 bytes",
            ),
        ] {
            assert_eq!(message(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    proptest! {
        #[test]
        fn files_that_are_cut_off_are_errors_or_lack_only_symbols(
            circuit in arbitrary::circuit(0..=8, 30),
            cut in any::<prop::sample::Index>(),
            ascii in any::<bool>(),
        ) {
            let sequential = circuit.clone().into();
            let bytes = if ascii { write_ascii(&sequential) } else { write_binary(&sequential) }.unwrap();
            if let Ok(read) = read_sequential(&bytes[..cut.index(bytes.len())]) {
                arbitrary::assert_same_function(&read.circuit, &circuit);
            }
        }

        #[test]
        fn damaged_files_are_read_or_errors(
            circuit in arbitrary::circuit(0..=8, 30),
            at in any::<prop::sample::Index>(),
            with in prop::collection::vec(any::<u8>(), 0..5),
            ascii in any::<bool>(),
        ) {
            let sequential = circuit.into();
            let mut bytes = if ascii { write_ascii(&sequential) } else { write_binary(&sequential) }.unwrap();
            let at = at.index(bytes.len());
            bytes.splice(at..=at, with);
            let _ = read_sequential(&bytes);
        }
    }
}
