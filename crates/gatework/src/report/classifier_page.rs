//! A classifier as a web page: one HTML file with the model as a WebAssembly module. Visitors draw an image, or move the
//! sliders of a table, and see the scores of the classes change.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gatework_logic::Classifier;
use gatework_logic::classifier::{Feature, FeatureKind};
use gatework_logic::formats::wasm::{WasmError, classifier_to_wasm};
use gatework_logic::minimize::gates;
use serde_json::{Value, json};

use super::page::{self, fill};

const BODY: &str = include_str!("classifier_page.html");
/// The script of the pages of classifiers.
pub(crate) const SCRIPT: &str = include_str!("classifier_page.js");
/// What the pages of classifiers add to the style of all pages.
pub(crate) const STYLE: &str = include_str!("classifier_page.css");

/// Returns the page of a classifier with a heading and one line below it.
pub fn classifier_page(title: &str, about: &str, classifier: &Classifier) -> Result<String, WasmError> {
    let style = [page::STYLE, STYLE].concat();
    Ok(page::document(title, about, &style, &classifier_body(classifier)?, SCRIPT))
}

/// Returns what the page shows below its heading, with the classifier and its data, but without style and script.
pub(crate) fn classifier_body(classifier: &Classifier) -> Result<String, WasmError> {
    let module = classifier_to_wasm(classifier)?;
    let model = model(classifier).to_string().replace('<', "\\u003c");
    Ok(fill(BODY, &[("model", &model), ("module", &BASE64_STANDARD.encode(&module))]))
}

/// The data for the script of the page.
fn model(classifier: &Classifier) -> Value {
    let circuit = classifier.circuit();
    let classes: Vec<&str> = classifier.head().classes().iter().map(|class| class.name.as_str()).collect();
    let features: Vec<Value> = classifier.encoder().features().iter().map(feature).collect();
    json!({
        "classes": classes,
        "features": features,
        "shape": classifier.encoder().shape(),
        "bits": classifier.encoder().bits(),
        "gates": gates(circuit),
        "depth": circuit.simplify().depth(),
    })
}

fn feature(feature: &Feature) -> Value {
    match &feature.kind {
        FeatureKind::Numeric(thresholds) => {
            let [low, high] = range(thresholds);
            json!({ "name": feature.name, "missing": feature.missing, "low": low, "high": high })
        }
        FeatureKind::Categorical(names) => {
            json!({ "name": feature.name, "missing": feature.missing, "categories": names })
        }
    }
}

/// The range of a slider: the thresholds, and a quarter of their distance on both sides.
fn range(thresholds: &[f32]) -> [f64; 2] {
    let (Some(&low), Some(&high)) = (thresholds.first(), thresholds.last()) else { return [0.0, 1.0] };
    let (low, high) = (f64::from(low), f64::from(high));
    let margin = if high > low { (high - low) / 4.0 } else { low.abs().max(1.0) };
    [low - margin, high + margin]
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{dump, element};
    use super::*;
    use gatework_logic::classifier::{Encoder, Head};
    use gatework_logic::{Circuit, Gate, Node};

    /// An image of 12x8 pixels: its class is the half that has more bright pixels.
    fn halves() -> Classifier {
        let features = (0..96).map(|i| Feature::numeric(format!("p{i}"), vec![127.0])).collect();
        let half = |right: bool| (0..96u32).filter(move |pixel| (pixel % 8 >= 4) == right);
        let outputs = [vec![96, 96, 96], half(false).collect(), vec![97; 3], half(true).collect()].concat();
        // Three outputs of the left class are constant: it is the class of an empty image.
        let nodes = vec![Node::new(Gate::TRUE, 0, 0), Node::new(Gate::FALSE, 0, 0)];
        let head = Head::equal_groups(vec!["left".into(), "</script>right".into()], 102, 1.0).unwrap();
        let encoder = Encoder::new(features, Some([1, 12, 8])).unwrap();
        Classifier::new(encoder, Circuit::new(96, nodes, outputs).unwrap(), head).unwrap()
    }

    fn visited(page: &str) -> Option<String> {
        let visitor = include_str!("classifier_visitor.js");
        let folder = tempfile::tempdir().unwrap();
        let html = page.replace("</body>", &format!("<script>{visitor}</script></body>"));
        dump(folder.path(), &html, "")
    }

    #[test]
    fn in_chromium_the_class_follows_the_pen() {
        let page = classifier_page("Halves", "", &halves()).unwrap();
        let Some(document) = visited(&page) else { return };
        let expected = "start left|left stroke left|cleared left|right stroke &lt;/script&gt;right|erased left|\
                        inverted left";
        assert_eq!(element(&document, "check"), expected);
        assert_eq!(element(&document, "status"), "Draw here. The right button or Shift erases.");
    }

    #[test]
    fn in_chromium_the_class_follows_the_sliders() {
        // Class b if the number is above 2, c if it is missing, d if the category is the second one.
        let features = vec![
            Feature::numeric("number <b>", vec![-2.0, 2.0]).with_missing(),
            Feature::categorical("kind", vec!["x".into(), "y".into()]),
        ];
        let nodes = vec![Node::new(Gate::TRUE, 0, 0), Node::new(Gate::FALSE, 0, 0)];
        let outputs = vec![5, 6, 6, 6, 1, 1, 6, 6, 2, 2, 6, 6, 4, 4, 4, 6];
        let names = ["a", "b", "c", "d"].map(String::from).to_vec();
        let classifier = Classifier::new(
            Encoder::new(features, None).unwrap(),
            Circuit::new(5, nodes, outputs).unwrap(),
            Head::equal_groups(names, 16, 1.0).unwrap(),
        )
        .unwrap();
        let Some(document) = visited(&classifier_page("Table", "", &classifier).unwrap()) else { return };
        assert_eq!(element(&document, "check"), "start a|slider b|missing c|category d");
    }

    #[test]
    fn words_cannot_break_the_page_and_it_loads_nothing() {
        let html = classifier_page("<img src=x>", "a & b {{module}}", &halves()).unwrap();
        assert!(html.contains("<h1>&lt;img src=x&gt;</h1>") && html.contains("a &amp; b {{module}}"));
        let count = |text: &str| text.matches("</script>").count();
        assert_eq!(count(&html), count(page::DOCUMENT) + count(BODY));
        for word in ["http:", "https:", "href=", "fetch(", "import(", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
    }

    #[test]
    fn sliders_reach_beyond_the_thresholds() {
        assert_eq!(range(&[]), [0.0, 1.0]);
        assert_eq!(range(&[4.0]), [0.0, 8.0]);
        assert_eq!(range(&[1.0, 3.0, 5.0]), [0.0, 6.0]);
    }
}
