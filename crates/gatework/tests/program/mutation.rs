//! Mutants of every kind of file that the program reads, except tables (see `crates/forecast/tests/mutation.rs`).
//!
//! A reader refuses a mutant with an error that names it, or uses it. `GATEWORK_MUTANTS` sets the number of mutants of each kind.

use std::path::Path;
use std::time::Duration;

use gatework::experiment::{Loaded, built_in};
use gatework::simulation::Simulation;
use gatework::subject::Subject;
use gatework_forecast::Forecaster;
use gatework_forecast::data::{Schema, Table};
use gatework_forecast::trained_network::Precision;
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::study::{Study, rows_from_csv};
use gatework_gates::automata::task::AutomatonTask;
use gatework_logic::formats::{self, FORMATS, Options};
use gatework_logic::to_json;
use gatework_test_support::counting::CountingAllocator;
use gatework_test_support::mutation::{check, count, mutant};
use gatework_train::run_folder::RunFolder;
use gatework_train::trainer::{Attempt, Task as _};

use crate::forecasts::trained as trained_forecaster;
use crate::{Place, SMALL, place, trained};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Mutants of each kind of file, unless `GATEWORK_MUTANTS` is set.
const MUTANTS: u64 = 300;

/// Kinds of files with a checksum: a mutant is refused, or it means the same as the original.
const CHECKSUMMED: &[&str] = &["automaton", "checkpoint", "forecaster", "json"];

/// A grey PNG of 10 x 9 pixels, and a coloured one.
const PNG: [&[u8]; 2] = [
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\n\0\0\0\t\x01\0\0\0\0#\xdd\x80\xbe\0\0\0\x11IDATx\xdac\x08u`X\xd5\xc0\x80\x8d\x04\0f\xc9\x07\x92O\x0e\x04\xd4\0\0\0\0IEND\xaeB`\x82",
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\n\0\0\0\t\x08\x02\0\0\0\x84\xc4*D\0\0\0\x19IDATx\xdac```\xf8\xcf\xc0\x80\x93\xc4'\xc7\x80WnH\xeb\x06\0\x94\xd4,\xd4A\x88\xfd\xe1\0\0\0\0IEND\xaeB`\x82",
];

/// A file of one kind in a folder, whose mutants are read.
struct Kind<'a> {
    name: &'a str,
    path: &'a Path,
    /// What errors contain.
    place: &'a str,
    originals: &'a [Vec<u8>],
}

impl Kind<'_> {
    /// Reads mutants with a function that returns what it has read in a form that can be compared.
    fn check<T, E: ToString>(
        &self,
        mut read: impl FnMut(&Path) -> Result<T, E>,
        meaning: impl Fn(T) -> String,
    ) {
        let has_checksum = CHECKSUMMED.contains(&self.name);
        check(self.name, self.place, has_checksum, self.originals, count(MUTANTS), |bytes| {
            std::fs::write(self.path, bytes).unwrap();
            read(self.path).map(&meaning).map_err(|error| error.to_string())
        });
    }
}

fn bytes_of(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn experiments_and_studies() {
    let place = place();
    let mut originals = bytes_of(&[SMALL]);
    originals.extend(built_in().map(|(_, text)| text.as_bytes().to_vec()));
    let path = place.path("mutant.toml");
    let kind = Kind { name: "experiment", path: &path, place: "mutant.toml", originals: &originals };
    kind.check(Loaded::read, |loaded| match loaded {
        Loaded::Forecaster(loaded) => format!("{:?}", loaded.experiment),
        loaded => loaded.to_toml(),
    });
    let studies = [
        "experiment = 'checkerboard'\nseeds = 20\n[settings.paper.training]\nrecipe = 'paper'\n[settings.search]\n",
        "experiment = 'small.toml'\nseeds = 2\n[grid]\n'training.learning_rate' = [0.05, 0.1]\n'training.batch' = [1, 2]\n",
    ];
    let kind = Kind { name: "study", originals: &bytes_of(&studies), place: "", ..kind };
    kind.check(Study::read, |study| format!("{study:?}"));
    let rows = "setting,seed,success,updates,moves,seconds,hard_loss,gates,fingerprint\n\
                paper,1,true,60,0,1.5,0.0,12,0123456789abcdef\nsearch,2,false,50,1000,2.5,3.0,14,0123456789abcdef\n";
    let kind = Kind { name: "results of a study", originals: &bytes_of(&[rows]), ..kind };
    let read = |path: &Path| {
        String::from_utf8(std::fs::read(path).unwrap())
            .map_err(|error| error.to_string())
            .and_then(|text| rows_from_csv(&text))
    };
    kind.check(read, |rows| format!("{rows:?}"));
}

#[test]
fn pictures() {
    let place = place();
    let target = |kind: &str, file: &str| {
        let target = format!("kind = \"{kind}\"\nfile = \"{file}\"");
        SMALL.replacen("kind = \"checkerboard\"", &target, 1)
    };
    place.write("text.toml", &target("text", "target.txt"));
    place.write("png.toml", &target("png", "target.png"));
    let pictures = ["#.#.#.#.#.\n".repeat(9), "R.G.B.Y...\n".repeat(9)];
    let text = pictures.map(String::into_bytes);
    let png = PNG.map(<[u8]>::to_vec);
    for (name, file, originals) in [("text", "target.txt", &text), ("png", "target.png", &png)] {
        let experiment = place.path(&format!("{name}.toml"));
        let kind = Kind { name, path: &place.path(file), place: "target", originals };
        kind.check(|_| Loaded::read(&experiment), |loaded| format!("{loaded:?}"));
    }
}

/// Reads a circuit or an automaton and uses it.
fn circuit(subject: &Subject) -> String {
    let circuit = &subject.circuit;
    let outputs = circuit.eval(&vec![true; circuit.inputs()]);
    let simulation = Simulation { size: Some([5, 6]), steps: Some(2), ..Simulation::default() };
    let ones = simulation.run(subject).map(|simulated| simulated.ones);
    format!("{outputs:?} {ones:?} {} {}", circuit.simplify().nodes().len(), to_json(&subject.document()))
}

#[test]
fn circuits() {
    let place = place();
    place.write(
        "tiny.toml",
        &SMALL.replace("[28, 24, 12, 8, 4]", "[28, 14, 7, 4]").replace("updates = 60", "updates = 2"),
    );
    place.run("train tiny.toml --seed 1 --out run");
    let subject = Subject::open(&place.path("run")).unwrap();
    let life = gatework_logic::rules::life(gatework_logic::Boundary::Torus);
    let documents =
        [subject.document(), gatework_logic::Document::Automaton { automaton: life, observed: None }];
    for format in FORMATS.iter().filter(|format| format.can_read() && format.can_write()) {
        let write = |document| formats::write(document, format, &Options::default()).unwrap();
        let originals: Vec<Vec<u8>> = documents.iter().map(write).collect();
        let file = format!("mutant.{}", format.endings[0]);
        let kind = Kind { name: format.name, path: &place.path(&file), place: &file, originals: &originals };
        kind.check(Subject::open, |subject| circuit(&subject));
    }
}

#[test]
fn automaton_runs() {
    let place = trained();
    let (run, loaded) = (place.path("run"), AutomatonExperiment::read(&place.path("small.toml")).unwrap());
    let original = |file: &str| [place.read(file)];

    let path = place.path("mutant.safetensors");
    let models = original("run/model.safetensors");
    let model = Kind { name: "automaton", path: &path, place: "mutant.safetensors", originals: &models };
    model.check(Subject::open, |subject| circuit(&subject));

    let settings = loaded.experiment.trainer_settings();
    let mut task = AutomatonTask::new(&loaded, 1).unwrap();
    let checkpoints = original("run/checkpoint/seed-1.safetensors");
    Kind { name: "checkpoint", originals: &checkpoints, ..model }.check(
        |path| {
            let attempt = Attempt::load(path, 1, &settings, &mut task).map_err(|error| error.to_string())?;
            Ok::<_, String>(format!("{attempt:?} {:?}", task.params().values))
        },
        |attempt| attempt,
    );

    let (path, summaries) = (place.path("run/summary.json"), original("run/summary.json"));
    Kind { name: "summary", path: &path, place: "summary.json", originals: &summaries }
        .check(|_| RunFolder::at(&run).summary(), |summary| format!("{summary:?}"));
}

#[test]
fn forecaster_runs() {
    let place = trained_forecaster();
    let table = Table::read(place.path("sales.csv"), &Schema::default()).unwrap();
    let path = place.path("mutant.safetensors");
    let full = Forecaster::load(place.path("run/model.safetensors")).unwrap();
    let quantised = |precision| full.with_precision(precision).unwrap().0.to_bytes();
    let originals =
        [place.read("run/model.safetensors"), quantised(Precision::Int8), quantised(Precision::F16)];
    Kind { name: "forecaster", path: &path, place: "mutant.safetensors", originals: &originals }.check(
        |path| Forecaster::load(path),
        |forecaster| match forecaster.predict(&table) {
            Ok(predictions) => format!("{predictions:?}"),
            Err(error) => error.to_string(),
        },
    );
}

/// Runs the program on mutants of a file: it ends with status 0, 1 or 2, and a failure has one message, about the file.
fn check_program(place: &Place, file: &str, arguments: &str) {
    let original = [place.read(file)];
    for number in 0..count(MUTANTS).div_ceil(40) {
        place.write(file, &mutant(&original, number));
        // A limit that only a hang exceeds.
        let result = place.command(arguments).timeout(Duration::from_secs(600)).output().unwrap();
        let said = String::from_utf8_lossy(&result.stderr);
        let which = format!("{arguments:?} with mutant {number} of {file}: {said}");
        let status = result.status.code().unwrap_or_else(|| panic!("killed; {which}"));
        assert!(status <= 2, "status {status}; {which}");
        let name = Path::new(file).file_name().unwrap().to_string_lossy();
        let has_message = said.lines().filter(|line| line.starts_with("error: ")).count() == 1;
        assert_eq!(has_message, status != 0, "status {status}; {which}");
        assert!(status == 0 || said.contains(&*name), "the message does not name the file; {which}");
    }
    place.write(file, &original[0]);
}

#[test]
fn the_program_refuses_or_uses_files_of_automata() {
    let place = trained();
    for (file, arguments) in [
        ("run/model.safetensors", "inspect run"),
        ("run/model.safetensors", "evaluate run"),
        ("run/experiment.toml", "inspect run"),
        ("run/circuit.json", "minimize run/circuit.json --effort fast -o smaller.aig"),
    ] {
        check_program(&place, file, arguments);
    }
    let resume = "train small.toml --seed 1 --resume --out run";
    check_program(&place, "run/summary.json", resume);
    std::fs::remove_file(place.path("run/summary.json")).unwrap();
    check_program(&place, "run/checkpoint/seed-1.safetensors", resume);
}

#[test]
fn the_program_refuses_or_uses_files_of_forecasters() {
    let place = trained_forecaster();
    for (file, arguments) in [
        ("run/model.safetensors", "predict run sales.csv"),
        ("sales.csv", "predict run sales.csv"),
        ("run/experiment.toml", "inspect run"),
        ("run/experiment.toml", "evaluate run"),
    ] {
        check_program(&place, file, arguments);
    }
}
