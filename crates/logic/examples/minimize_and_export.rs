//! Reads a circuit, minimises it, proves that the function is unchanged, and prints it as Verilog and as C:
//!
//! ```text
//! cargo run -p gatework-logic --example minimize_and_export
//! ```

use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{self, gates, minimize};
use gatework_logic::prove::{Verdict, equivalent};

/// A full adder in BLIF: the sum and the carry as sums of products.
const FULL_ADDER: &str = "\
.model full_adder
.inputs a b cin
.outputs sum cout
.names a b cin sum
100 1
010 1
001 1
111 1
.names a b cin cout
11- 1
1-1 1
-11 1
.end
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let document = formats::read(FULL_ADDER.as_bytes(), Format::named("blif")?)?;
    let circuit = document.circuit();
    let small = minimize(circuit, &minimize::Options::default()).circuit;
    if equivalent(circuit, &small)? != Verdict::Equal {
        return Err("the minimised circuit is not proved equal".into());
    }
    eprintln!("{} gates, minimised to {} and proved equal", gates(circuit), gates(&small));
    let options = formats::Options { name: Some("full_adder".into()), ..formats::Options::default() };
    for format in ["verilog", "c"] {
        let file = formats::write(&small.clone().into(), Format::named(format)?, &options)?;
        println!("{}", String::from_utf8(file)?);
    }
    Ok(())
}
