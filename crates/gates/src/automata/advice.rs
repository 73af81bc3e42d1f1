//! Advice about experiments: settings that cannot succeed, and what to change after a failure, by its cause.

use gatework_logic::{Automaton, Boundary};

use super::construct::Anchor;
use super::evaluate;
use super::experiment::{AutomatonExperiment, Recipe};
use super::states::{Phase, Start, Target};
use super::success;

/// Returns what is wrong with settings that are valid, but cannot succeed.
pub fn warnings(loaded: &AutomatonExperiment) -> Vec<String> {
    let steps = loaded.experiment.automaton.steps;
    let mut warnings: Vec<String> = placeless(loaded).into_iter().collect();
    let far = farthest_cell(loaded).filter(|distance| *distance > steps);
    let warning = |distance| {
        format!(
            "automaton.steps is {steps}, but the picture has cells {distance} cells from the seed: information travels one cell \
             a step, so at least {distance} steps are needed"
        )
    };
    warnings.extend(far.map(warning));
    warnings
}

/// Says that nothing gives a pattern its place: on a torus all shifts of a random start state are as likely.
fn placeless(loaded: &AutomatonExperiment) -> Option<String> {
    let Target::Pattern { tile, phase: Phase::Anchored, .. } = &loaded.target else { return None };
    let experiment = &loaded.experiment;
    let is_uniform = tile.codes.iter().all(|code| *code == tile.codes[0]);
    let on_torus = experiment.automaton.boundary == Boundary::Torus;
    let from_noise = matches!(experiment.start, Start::Random | Start::Zeros);
    (on_torus && from_noise && !is_uniform).then(|| {
        "on a torus nothing gives the pattern its place: a shifted start state leads to a shifted pattern. Set automaton.boundary = \
         \"zeros\", or start.kind = \"seed\", or target.phase = \"any\""
            .into()
    })
}

/// The distance from the seed to the farthest cell of a picture that is not background.
fn farthest_cell(loaded: &AutomatonExperiment) -> Option<usize> {
    let Target::Picture(picture) = &loaded.target else { return None };
    if loaded.experiment.start != Start::Seed {
        return None;
    }
    let [height, width] = picture.size();
    let torus = loaded.experiment.automaton.boundary == Boundary::Torus;
    let distance = |at: usize, size: usize| {
        let direct = at.abs_diff(size / 2);
        if torus { direct.min(size - direct) } else { direct }
    };
    let cells = (0..height * width).filter(|&i| picture.codes[i] != 0);
    cells.map(|i| distance(i / width, height).max(distance(i % width, width))).max()
}

/// Returns what to change after training that did not succeed. `wrong` is the number of bits that are wrong at best.
pub fn advice(loaded: &AutomatonExperiment, automaton: &Automaton, wrong: f64) -> Vec<String> {
    let experiment = &loaded.experiment;
    let settings = &experiment.automaton;
    let mut lines = warnings(loaded);
    if wrong == 0.0 {
        lines.extend(failed_protocols(loaded, automaton));
        let findings = success::report(loaded, automaton, 0).unwrap_or_default();
        let failed = findings.iter().filter(|finding| finding.asked && !finding.holds);
        lines.extend(failed.map(|finding| format!("{}.", finding.sentence())));
    }
    if experiment.training.recipe != Recipe::Search {
        lines.push(
            "Gradient descent alone does not always end with a right circuit: try further seeds, or add a search (--recipe search)."
                .into(),
        );
    }
    if let Some(axes) = loaded.target.axes(&experiment.start, settings.boundary, settings.grid) {
        let needed = loaded.target.channels() + axes.channels();
        if settings.channels < needed {
            lines.push(format!(
                "automaton.channels is {}: with {needed} or more, cells can count their coordinates.",
                settings.channels
            ));
        }
        let longest = settings.grid[0].max(settings.grid[1]);
        let least = if matches!(axes.anchor, Anchor::Seed(_)) { longest / 2 } else { longest };
        if settings.steps < least {
            lines.push(format!("automaton.steps is {}: counting coordinates takes {least}.", settings.steps));
        }
    } else if matches!(loaded.target, Target::Pattern { phase: Phase::Any, .. }) {
        lines.push(
            "On a torus, patterns from random states are hardly ever learned: the edge of a grid with automaton.boundary = \"zeros\" \
             gives the pattern a place."
                .into(),
        );
    } else if let Target::Pairs(_) = loaded.target {
        lines.push(
            "No elementary, Life-like or symmetric rule explains the pairs. More automaton.channels, search.moves and search.runs \
             give another rule more room and time."
                .into(),
        );
    } else if !loaded.target.is_rule() {
        lines.push(
            "More automaton.channels, update.layers or automaton.steps give the rule more room; more search.runs give it more time."
                .into(),
        );
    }
    if lines.is_empty() {
        lines.push(
            "Try another --seed, or more search.runs and search.moves in a copy of the experiment.".into(),
        );
    }
    lines
}

/// Describes the protocols that count for success and are not passed.
fn failed_protocols(loaded: &AutomatonExperiment, automaton: &Automaton) -> Vec<String> {
    let mut lines = Vec::new();
    for protocol in loaded.experiment.counted_protocols() {
        match evaluate::score(automaton, loaded, protocol, 0) {
            Ok(score) if score.wrong > 0 => lines.push(format!(
                "The protocol {:?} fails: {} of {} bits are wrong after {} steps on {}x{} cells.",
                protocol.name, score.wrong, score.bits, protocol.steps, protocol.grid[0], protocol.grid[1]
            )),
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_steps_for_a_picture_are_named() {
        let mut loaded = AutomatonExperiment::find("lizard").unwrap();
        assert!(warnings(&loaded).is_empty());
        loaded.experiment.automaton.steps = 2;
        let warning = &warnings(&loaded)[0];
        assert!(warning.starts_with("automaton.steps is 2, but the picture has cells"), "{warning}");
    }

    #[test]
    fn advice_names_channels_and_failed_protocols() {
        let mut loaded = AutomatonExperiment::find("checkerboard").unwrap();
        loaded.experiment.automaton.channels = 3;
        let zeros = gatework_logic::Circuit::new(27, vec![], vec![4, 13, 22]).unwrap();
        let automaton = Automaton::new(3, Boundary::Zeros, zeros).unwrap();
        let lines = advice(&loaded, &automaton, 0.0);
        assert!(lines.iter().any(|line| line.contains("automaton.channels is 3: with 6")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("\"generalisation\" fails")), "{lines:?}");
    }
    #[test]
    fn a_pattern_that_nothing_gives_a_place_is_named() {
        let mut loaded = AutomatonExperiment::find("stripes").unwrap();
        assert!(warnings(&loaded).is_empty());
        loaded.experiment.automaton.boundary = Boundary::Torus;
        assert!(warnings(&loaded)[0].starts_with("on a torus nothing gives the pattern its place"));
        loaded.experiment.start = Start::Seed;
        assert!(warnings(&loaded).is_empty());
    }
}
