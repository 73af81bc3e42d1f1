//! Forecasts of intermittent demand: Croston's method with the correction of Syntetos and Boylan (2005), and the method of
//! Teunter, Syntetos and Babai (2011).

/// Smoothing parameters that are compared by the squared one-step errors.
const RATES: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5];

/// Returns Croston's forecast of every step: the smoothed size of demands over their smoothed interval. With
/// `correction`, it is reduced by half the rate as Syntetos and Boylan propose, since it is biased otherwise.
pub fn croston(values: &[f64], rate: f64, correction: bool) -> f64 {
    let mut state: Option<(f64, f64)> = None;
    let mut since = 1.0;
    for &y in values {
        if y == 0.0 {
            since += 1.0;
            continue;
        }
        state = Some(match state {
            // The first interval counts from the beginning.
            None => (y, since),
            Some((size, interval)) => (size + rate * (y - size), interval + rate * (since - interval)),
        });
        since = 1.0;
    }
    let (size, interval) = state.unwrap_or((0.0, 1.0));
    size / interval * if correction { 1.0 - rate / 2.0 } else { 1.0 }
}

/// Returns the forecast of every step by the method of Teunter, Syntetos and Babai: the smoothed size of demands times
/// the smoothed probability of one, which falls while there is none.
pub fn tsb(values: &[f64], size_rate: f64, probability_rate: f64) -> f64 {
    tsb_with_errors(values, size_rate, probability_rate).0
}

/// Returns the forecast and the sum of squared one-step errors.
fn tsb_with_errors(values: &[f64], size_rate: f64, probability_rate: f64) -> (f64, f64) {
    let Some(first) = values.iter().find(|y| **y != 0.0) else { return (0.0, 0.0) };
    let mut size = *first;
    let mut probability = f64::from(u8::from(values[0] != 0.0));
    let mut errors = 0.0;
    for &y in &values[1..] {
        errors += (y - size * probability).powi(2);
        if y == 0.0 {
            probability -= probability_rate * probability;
        } else {
            size += size_rate * (y - size);
            probability += probability_rate * (1.0 - probability);
        }
    }
    (size * probability, errors)
}

/// Returns the rates of TSB with the least squared one-step errors.
pub fn fit_tsb(values: &[f64]) -> (f64, f64) {
    let pairs = RATES.into_iter().flat_map(|size| RATES.into_iter().map(move |p| (size, p)));
    let error = |(size, probability): &(f64, f64)| tsb_with_errors(values, *size, *probability).1;
    pairs.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or((0.1, 0.1))
}

/// Returns whether demand is intermittent: not negative, and on average more than 1.32 steps apart (Syntetos, Boylan and
/// Croston 2005).
pub fn is_intermittent(values: &[f64]) -> bool {
    let demands = values.iter().filter(|y| **y != 0.0).count();
    demands > 0 && values.iter().all(|y| *y >= 0.0) && values.len() as f64 / demands as f64 > 1.32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: [f64; 12] = [0.0, 0.0, 3.0, 0.0, 2.0, 0.0, 0.0, 0.0, 5.0, 1.0, 0.0, 0.0];

    #[test]
    fn forecasts_follow_their_definitions() {
        // By hand: sizes 3, 2, 5, 1 after 3, 2, 4, 1 steps, smoothed with rate 0.5.
        assert_eq!(croston(&DEMAND, 0.5, false), 2.375 / 2.125);
        assert_eq!(croston(&DEMAND, 0.5, true), 0.75 * 2.375 / 2.125);
        let values = [2.0, 0.0, 4.0, 0.0];
        // Sizes 2, 3; probabilities 1, 0.5, 0.75, 0.375.
        assert_eq!(tsb(&values, 0.5, 0.5), 3.0 * 0.375);
    }

    #[test]
    fn regular_demand_is_forecast_exactly_and_none_is_zero() {
        assert_eq!(croston(&[4.0; 9], 0.1, false), 4.0);
        assert_eq!(tsb(&[4.0; 9], 0.1, 0.1), 4.0);
        for values in [&[0.0; 5][..], &[]] {
            assert_eq!((croston(values, 0.1, true), tsb(values, 0.1, 0.1)), (0.0, 0.0));
        }
        let (size, probability) = fit_tsb(&DEMAND);
        assert!(RATES.contains(&size) && RATES.contains(&probability));
    }

    #[test]
    fn only_rare_demand_is_intermittent() {
        assert!(is_intermittent(&DEMAND));
        assert!(!is_intermittent(&[1.0, 2.0, 0.0, 3.0, 4.0]));
        assert!(!is_intermittent(&[-1.0, 0.0, 0.0, 0.0]));
        assert!(!is_intermittent(&[0.0; 5]) && !is_intermittent(&[]));
    }
}
