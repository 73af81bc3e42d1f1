//! Compares minimised automata with Berkeley ABC on the same input, as a Markdown table:
//!
//! ```text
//! cargo run --release -p gatework-logic --example against_abc -- runs/*/circuit.json
//! ```
//!
//! `docs/circuits-table` trains the circuits of the documentation and runs this example.
//!
//! ABC gets the cone of influence of the observed channels. It runs `compress2rs` three times, then `dch; map -a` with a
//! library of all two-input gates at area 1 and inverters at area 0, so both minimise the same cost. If ABC is not
//! installed its column stays empty.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{Effort, Options, cone_of_influence, gates, minimize_automaton};
use gatework_logic::prove::{Verdict, equivalent_automata};
use gatework_logic::{Automaton, Document};

type Failure = Box<dyn std::error::Error>;

/// ABC's `compress2rs`, expanded, because not every installation has the resource file that defines it.
const COMPRESS2RS: &str = "balance -l; resub -K 6 -l; rewrite -l; resub -K 6 -N 2 -l; refactor -l; resub -K 8 -l; \
    balance -l; resub -K 8 -N 2 -l; rewrite -l; resub -K 10 -l; rewrite -z -l; resub -K 10 -N 2 -l; balance -l; \
    resub -K 12 -l; refactor -z -l; resub -K 12 -N 2 -l; rewrite -z -l; balance -l";

fn main() -> Result<(), Failure> {
    println!("| learned rule | channels | active gates | gates | normal | high | seconds (high) | ABC |");
    println!("|---|---|---|---|---|---|---|---|");
    for path in std::env::args().skip(1) {
        let Document::Automaton { automaton, observed } =
            formats::read(&std::fs::read(&path)?, Format::of_path(Path::new(&path))?)?
        else {
            return Err(format!("{path} is not an automaton").into());
        };
        let observed = observed.unwrap_or(automaton.channels);
        let (normal, _) = proved(&automaton, observed, Effort::Normal)?;
        let (high, seconds) = proved(&automaton, observed, Effort::High)?;
        let abc = abc(&cone_of_influence(&automaton, observed)?)?;
        let name = Path::new(&path).parent().and_then(Path::file_name).unwrap_or_default();
        println!(
            "| `{}` | {} -> {} | {} | {} | {} | {} | {seconds:.1} | {} |",
            name.to_string_lossy(),
            automaton.channels,
            high.channels,
            automaton.circuit.active(),
            gates(&cone_of_influence(&automaton, observed)?.circuit),
            gates(&normal.circuit),
            gates(&high.circuit),
            abc.map_or_else(String::new, |area| area.to_string())
        );
    }
    Ok(())
}

/// Minimises an automaton and proves the result equivalent. Also returns the seconds that both took.
fn proved(automaton: &Automaton, observed: usize, effort: Effort) -> Result<(Automaton, f64), Failure> {
    let start = Instant::now();
    let small = minimize_automaton(automaton, observed, &Options { effort, ..Options::default() })?;
    match equivalent_automata(automaton, &small.automaton, observed, &small.map)? {
        Verdict::Equal => Ok((small.automaton, start.elapsed().as_secs_f64())),
        verdict => Err(format!("not proved equal: {verdict:?}").into()),
    }
}

/// Returns the number of two-input gates that ABC needs, if it is installed.
fn abc(automaton: &Automaton) -> Result<Option<usize>, Failure> {
    let folder = tempfile::tempdir()?;
    let blif = formats::write(
        &automaton.circuit.clone().into(),
        Format::named("blif")?,
        &formats::Options::default(),
    )?;
    std::fs::write(folder.path().join("in.blif"), blif)?;
    std::fs::write(folder.path().join("gates.genlib"), library())?;
    let script = format!(
        "read_library gates.genlib; read_blif in.blif; strash; {COMPRESS2RS}; {COMPRESS2RS}; {COMPRESS2RS}; dch; map -a; print_stats"
    );
    let run = Command::new("berkeley-abc").args(["-c", &script]).current_dir(&folder).output();
    let output = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => String::from_utf8_lossy(&output?.stdout).into_owned(),
    };
    // The last line of `print_stats` has "area =26.00".
    let area = output.rsplit("area =").next().and_then(|rest| rest.split_whitespace().next());
    let area: Option<f64> = area.and_then(|area| area.parse().ok());
    Ok(Some(
        area.ok_or_else(|| format!("cannot find the area in the output of ABC: {output}"))?.round() as usize
    ))
}

/// Returns a genlib library: all functions of two inputs at area 1, inverters, buffers and constants at area 0.
fn library() -> String {
    let gates = ["a*b", "a*!b", "!a*b", "!a*!b", "a+b", "a+!b", "!a+b", "!a+!b", "a*!b+!a*b", "a*b+!a*!b"];
    let row =
        |(i, function): (usize, &&str)| format!("GATE g{i} 1 o={function}; PIN * UNKNOWN 1 999 1 0 1 0\n");
    let mut text: String = gates.iter().enumerate().map(row).collect();
    text += "GATE inv 0 o=!a; PIN * INV 1 999 0 0 0 0\nGATE zero 0 o=CONST0;\nGATE one 0 o=CONST1;\n";
    text += "GATE buf 0 o=a; PIN * NONINV 1 999 0 0 0 0\n";
    text
}
