//! Mutation tests of readers: a reader must refuse a damaged file with an error, or use it. It must not panic, and its memory must
//! be in proportion to the file.
//!
//! Mutants are damaged as disks, networks and editors do it, and have numbers that a reader may not expect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counting::peak_of;

/// Memory that a reader may use for a file of any size, and in addition for each byte of the file.
const MAX_MEMORY: usize = 64 << 20;
const MAX_MEMORY_PER_BYTE: usize = 100;

/// Returns the number of mutants of each kind of file: `GATEWORK_MUTANTS`, or the default.
///
/// # Panics
/// If the variable is not a number.
pub fn count(default: u64) -> u64 {
    std::env::var("GATEWORK_MUTANTS")
        .map_or(default, |text| text.parse().expect("GATEWORK_MUTANTS is a number"))
}

/// Reads mutants of files of one kind. The reader returns what it has read in a form that can be compared, or its error message,
/// which must contain `place`. With a checksum, a mutant that is not refused must be read as one of the originals.
///
/// The test needs the [`CountingAllocator`](crate::counting::CountingAllocator).
///
/// # Panics
/// If the reader panics, uses too much memory or gives an error without the place; if it refuses an original, or hardly any
/// mutant.
pub fn check(
    kind: &str,
    place: &str,
    has_checksum: bool,
    originals: &[Vec<u8>],
    mutants: u64,
    mut reader: impl FnMut(&[u8]) -> Result<String, String>,
) {
    let read =
        |original: &Vec<u8>| reader(original).unwrap_or_else(|error| panic!("{kind}, original: {error}"));
    let meanings: Vec<String> = originals.iter().map(read).collect();
    let mut refused = 0;
    for number in 0..mutants {
        let bytes = mutant(originals, number);
        let which = || {
            let start = &bytes[..bytes.len().min(2000)];
            format!("{kind}, mutant {number}, {} bytes: {}", bytes.len(), start.escape_ascii())
        };
        let (result, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| reader(&bytes))));
        let limit = MAX_MEMORY + MAX_MEMORY_PER_BYTE * bytes.len();
        assert!(peak <= limit, "{peak} bytes of memory, more than {limit}; {}", which());
        match result {
            Err(_) => panic!("the reader panicked; {}", which()),
            Ok(Err(message)) => {
                refused += 1;
                assert!(message.contains(place), "{message:?} does not name {place}; {}", which());
            }
            Ok(Ok(meaning)) => assert!(
                !has_checksum || meanings.contains(&meaning),
                "damage was not noticed in spite of a checksum; {}",
                which()
            ),
        }
    }
    assert!(refused > mutants / 10, "{kind}: {refused} of {mutants} mutants were refused");
}

/// A sequence of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }
}

/// Numbers at the limits of the types that readers use.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1e308",
    "1e-320",
    "nan",
    "4294967296",
    "2147483647",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "1000000",
    "0.1",
];

/// Bytes that end or begin something in the formats, and limits.
const BYTES: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'\n', b' ', b'-', b'9', b'{', b']'];

/// Returns a mutant of one of the files, with one to three mutations. The same number gives the same mutant.
pub fn mutant(files: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let mut bytes = files[random.below(files.len())].clone();
    for _ in 0..1 + random.below(2) * random.below(3) {
        mutate(&mut bytes, files, &mut random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, files: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let range = |random: &mut Random| at..(at + 1 + random.below(64)).min(bytes.len()).max(at);
    match random.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte =
                    if random.below(2) == 0 { BYTES[random.below(BYTES.len())] } else { random.word() as u8 };
            }
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(range(random))),
        4 => {
            let copy = bytes[range(random)].to_vec();
            bytes.splice(at..at, copy.repeat(1 + random.below(4)));
        }
        5 => drop(bytes.splice(at..at, NUMBERS[random.below(NUMBERS.len())].bytes())),
        6 => {
            let digits = number_after(bytes, at);
            bytes.splice(digits, NUMBERS[random.below(NUMBERS.len())].bytes());
        }
        7 => {
            let number = [u64::MAX, 1 << 63, 1 << 40, u64::from(u32::MAX), 1 << 31, 1][random.below(6)];
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        8 => {
            let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            let (from, to) = (random.below(lines.len().max(1)), random.below(lines.len() + 1));
            let line = lines.get(from).map(|line| line.to_vec()).unwrap_or_default();
            let before: usize = lines[..to].iter().map(|line| line.len()).sum();
            bytes.splice(before..before, line);
        }
        _ => {
            let other = &files[random.below(files.len())];
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
}

/// Returns the range of the first number at or after a place; an empty one at the place if there is none.
fn number_after(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else { return at..at };
    let start = at + start;
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    start..start + length
}

#[test]
fn mutants_repeat_and_differ() {
    let files = [b"seeds = 20\nlayers = [17, 16]\n".to_vec(), b"task = 'automaton'\n".to_vec()];
    let mutants = || (0..200).map(|number| mutant(&files, number));
    assert!(mutants().eq(mutants()));
    let distinct: std::collections::BTreeSet<Vec<u8>> = mutants().collect();
    assert!(distinct.len() > 150, "{} of 200 mutants are distinct", distinct.len());
    let numbers = |text: &str| distinct.iter().any(|mutant| String::from_utf8_lossy(mutant).contains(text));
    assert!(NUMBERS.iter().any(|number| numbers(&format!("= {number}\n"))));
}
