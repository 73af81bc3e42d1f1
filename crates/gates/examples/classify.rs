//! Learns a circuit that tells handwritten digits apart, and writes it as a C header.

use gatework_gates::classifier::ClassifierBuilder;
use gatework_logic::formats::{self, Format, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digits = gatework_train::datasets::digits();
    let labels: Vec<u32> = digits.labels.iter().map(|&label| label as u32).collect();
    let fitted =
        ClassifierBuilder::new().epochs(30).sweeps(0).test(0.2).fit(64, &digits.features, &labels)?;
    let gates = fitted.circuit().nodes().len();
    println!("{:.1} % of the test rows by {gates} gates", 100.0 * fitted.accuracy);
    println!("first rows: {:?}, classes {:?}", fitted.predict(&digits.features[..640])?, &labels[..10]);

    let path = std::env::temp_dir().join("digits.h");
    let options = Options { name: Some("digits".into()), ..Options::default() };
    std::fs::write(&path, formats::write(&fitted.classifier.into(), Format::named("c")?, &options)?)?;
    println!("wrote {}", path.display());
    Ok(())
}
