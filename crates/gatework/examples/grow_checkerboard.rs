//! Learns a cellular automaton whose cells form a checkerboard from random states, and writes it as a Verilog grid.

use gatework::logic::formats::{self, Format, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trained = gatework::train_automaton("checkerboard")?;
    println!("seed {}: {} gates", trained.kept().seed, trained.gates.reachable);
    let options = Options { name: Some("checkerboard".into()), grid: Some([16, 16]), ..Options::default() };
    let verilog = formats::write(&trained.document(), Format::named("verilog")?, &options)?;
    let path = std::env::temp_dir().join("checkerboard.v");
    std::fs::write(&path, verilog)?;
    println!("wrote {}", path.display());
    Ok(())
}
