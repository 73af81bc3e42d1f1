//! Advice about experiments: settings that cannot succeed, and what to change after a failure, by its cause.

use gatework_logic::{Automaton, Boundary};

use super::construct::Anchor;
use super::evaluate;
use super::experiment::{AutomatonExperiment, Recipe};
use super::states::{Start, Target};
use super::success;

/// Returns what is wrong with settings that are valid, but cannot succeed.
pub fn warnings(loaded: &AutomatonExperiment) -> Vec<String> {
    let steps = loaded.experiment.automaton.steps;
    let far = farthest_cell(loaded).filter(|distance| *distance > steps);
    let warning = |distance| {
        format!(
            "automaton.steps is {steps}, but the picture has cells {distance} cells from the seed: information travels one cell \
             a step, so at least {distance} steps are needed"
        )
    };
    far.map(warning).into_iter().collect()
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
    let experiment = &loaded.experiment;
    let rate = experiment.automaton.fire_rate;
    let counted = experiment.protocols.iter().filter(|p| p.damage.is_none() && p.fire_rate == rate);
    let mut lines = Vec::new();
    for protocol in counted {
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
}
