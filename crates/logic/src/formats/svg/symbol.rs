//! Gate symbols: the distinctive shapes of AND, OR and XOR, a triangle for a buffer, a circle for an inverter.

use crate::gate::Gate;
use std::fmt::Write;

/// The width and height of a gate without circles.
pub(super) const WIDTH: f64 = 36.0;
const HEIGHT: f64 = 28.0;
/// The radius of an inverter circle.
const CIRCLE: f64 = 3.5;

/// The vertical offset of operand `k` of `count` from the centre of the gate.
pub(super) fn pin(k: usize, count: usize) -> f64 {
    if count == 1 { 0.0 } else { (k as f64 - 0.5) * HEIGHT / 2.0 }
}

/// The horizontal offset of the output of a gate from its centre.
pub(super) fn tail(gate: Option<Gate>) -> f64 {
    let circle = gate.is_some_and(|gate| parts(gate).2);
    WIDTH / 2.0 + if circle { 2.0 * CIRCLE } else { 0.0 }
}

/// The body of a gate symbol.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    And,
    Or,
    Xor,
    Wire,
    Constant(bool),
}

/// The body, whether each operand has a circle, and whether the output has one.
fn parts(gate: Gate) -> (Body, [bool; 2], bool) {
    match gate {
        Gate::AND => (Body::And, [false, false], false),
        Gate::A_AND_NOT_B => (Body::And, [false, true], false),
        Gate::NOT_A_AND_B => (Body::And, [true, false], false),
        Gate::NAND => (Body::And, [false, false], true),
        Gate::OR => (Body::Or, [false, false], false),
        Gate::A_OR_NOT_B => (Body::Or, [false, true], false),
        Gate::NOT_A_OR_B => (Body::Or, [true, false], false),
        Gate::NOR => (Body::Or, [false, false], true),
        Gate::XOR => (Body::Xor, [false, false], false),
        Gate::XNOR => (Body::Xor, [false, false], true),
        Gate::NOT_A | Gate::NOT_B => (Body::Wire, [false, false], true),
        Gate::A | Gate::B => (Body::Wire, [false, false], false),
        Gate::FALSE => (Body::Constant(false), [false, false], false),
        _ => (Body::Constant(true), [false, false], false),
    }
}

/// Draws a gate centred at a point.
pub(super) fn draw(text: &mut String, gate: Gate, x: f64, y: f64) {
    let (body, circles, inverted) = parts(gate);
    let (left, right, top, bottom) = (x - WIDTH / 2.0, x + WIDTH / 2.0, y - HEIGHT / 2.0, y + HEIGHT / 2.0);
    let radius = HEIGHT / 2.0;
    // The end of the straight part of an AND.
    let middle = right - radius;
    let path = match body {
        Body::And => format!(
            "M{left:.1} {top:.1}H{middle:.1}A{radius} {radius} 0 0 1 {middle:.1} {bottom:.1}H{left:.1}Z"
        ),
        Body::Or | Body::Xor => format!(
            "M{left:.1} {top:.1}C{x:.1} {top:.1} {:.1} {:.1} {right:.1} {y:.1}C{:.1} {:.1} {x:.1} {bottom:.1} {left:.1} \
             {bottom:.1}Q{:.1} {y:.1} {left:.1} {top:.1}Z",
            x + 10.0,
            top + 4.0,
            x + 10.0,
            bottom - 4.0,
            left + 12.0
        ),
        Body::Wire => format!("M{left:.1} {:.1}L{right:.1} {y:.1}L{left:.1} {:.1}Z", top + 3.0, bottom - 3.0),
        Body::Constant(_) => {
            format!("M{left:.1} {:.1}H{right:.1}V{:.1}H{left:.1}Z", top + 4.0, bottom - 4.0)
        }
    };
    // Writing to a string never fails, here and below.
    let _ = writeln!(
        text,
        "<path class=\"gate\" d=\"{path}\"><title>{}</title></path>",
        gate.name().replace('&', "&amp;")
    );
    if body == Body::Xor {
        let _ = writeln!(
            text,
            "<path class=\"stroke\" d=\"M{:.1} {bottom:.1}Q{:.1} {y:.1} {:.1} {top:.1}\"/>",
            left - 5.0,
            left + 7.0,
            left - 5.0
        );
    }
    if let Body::Constant(value) = body {
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x - 4.0, y + 4.0, u8::from(value));
    }
    if inverted {
        draw_circle(text, right + CIRCLE, y);
    }
    for (k, _) in circles.iter().enumerate().filter(|(_, inverts)| **inverts) {
        // The back of an OR is curved; its circles are where the line meets it.
        let bow = if body == Body::And { 0.0 } else { 4.5 };
        draw_circle(text, left - CIRCLE + bow, y + pin(k, 2));
    }
}

fn draw_circle(text: &mut String, x: f64, y: f64) {
    let _ = writeln!(text, "<circle class=\"gate\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{CIRCLE}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_computes_its_gate() {
        for gate in Gate::ALL {
            let (body, [not_a, not_b], inverted) = parts(gate);
            for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
                let operands = [a != not_a, b != not_b];
                let value = match body {
                    Body::And => operands[0] && operands[1],
                    Body::Or => operands[0] || operands[1],
                    Body::Xor => operands[0] != operands[1],
                    Body::Wire => {
                        if gate.depends_on_a() {
                            a
                        } else {
                            b
                        }
                    }
                    Body::Constant(value) => value,
                };
                assert_eq!(value != inverted, gate.eval(a, b), "{gate} at {a}, {b}");
            }
        }
    }
}
