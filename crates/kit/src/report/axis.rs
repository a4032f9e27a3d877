//! An axis: its range, its ticks on round numbers, and where a value lies on it.

/// From the data to a place between 0 and 1, with ticks.
#[derive(Clone, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    log: bool,
    pub ticks: Vec<f64>,
}

/// Tick distances within a decade.
const STEPS: [f64; 5] = [1.0, 2.0, 2.5, 5.0, 10.0];
/// Values farther out than this are no measurement; an axis does not follow them.
const FAR: f64 = 1e15;

impl Axis {
    /// Builds an axis over values of at most 10¹⁵; a logarithmic one leaves out 0 and below.
    ///
    /// `about` ticks are wanted. A linear axis with `snug` ends at the data (for x), the others
    /// at ticks, and begin at 0 where the data come near it; values that differ by less than 0.2 %
    /// are one value to them.
    pub fn new(values: impl Iterator<Item = f64>, log: bool, about: usize, snug: bool) -> Axis {
        let (low, high) = values
            .filter(|v| v.abs() <= FAR && (!log || *v >= 1.0 / FAR))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        if log { Axis::log(low, high) } else { Axis::linear(low, high, about, snug) }
    }

    fn linear(mut low: f64, mut high: f64, about: usize, snug: bool) -> Axis {
        // Too near for steps, or too near zero.
        let one_value = if snug { 1e-12 } else { 2e-3 };
        if high - low <= (one_value * high.abs().max(low.abs())).max(1e-290) {
            // One value: an axis around it.
            let around = if high == 0.0 { 1.0 } else { high.abs() * 0.01 };
            (low, high) = (low - around, high + around);
        } else if !snug && low > 0.0 && low < 0.4 * high {
            low = 0.0;
        }
        let least = (high - low) / about as f64;
        let power = 10f64.powf(least.log10().floor());
        let step = STEPS.iter().map(|s| s * power).find(|s| *s >= least * 0.999);
        let step = step.unwrap_or(10.0 * power);
        let near = 1e-9;
        let (first, last) = if snug {
            ((low / step - near).ceil(), (high / step + near).floor())
        } else {
            // A hair beyond a tick is no reason for another one.
            ((low / step + 0.05).floor(), (high / step - 0.05).ceil())
        };
        let ticks: Vec<f64> = (0..=(last - first) as i32)
            .map(|i| (first + f64::from(i)) * step)
            // 0.1 + 0.2 is no label.
            .map(|t| (t / step).round() * step)
            .collect();
        if !snug {
            (low, high) = (low.min(first * step), high.max(last * step));
        }
        Axis { low, high, log: false, ticks }
    }

    fn log(low: f64, high: f64) -> Axis {
        let decades = (high / low).log10();
        let wanted: &[f64] = match decades {
            d if d <= 1.3 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            d if d <= 3.2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        // Never an axis of one value, never more decades than there is room for labels.
        let (low, high) = if decades < 0.05 { (low / 1.5, high * 1.5) } else { (low, high) };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let every = 1 + (last - first) / 12;
        let ticks = (first..=last)
            .filter(|p| (p - first) % every == 0)
            .flat_map(|p| wanted.iter().map(move |w| w * 10f64.powi(p)))
            .filter(|t| (low * 0.999..=high * 1.001).contains(t))
            .collect();
        Axis { low, high, log: true, ticks }
    }

    /// Returns where `value` lies: 0 at the low end, 1 at the high one. Beyond them it stays there.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the text at a tick: as many decimals as the ticks need, powers of ten where they are
    /// long.
    pub fn label(&self, tick: f64) -> String {
        if self.log {
            let power = tick.abs().log10();
            if power.fract().abs() < 1e-9 && !(-2.5..4.5).contains(&power) {
                return format!("10{}", superscript(power.round() as i32));
            }
            return plain(tick, (-power).ceil().clamp(0.0, 6.0) as usize + 1);
        }
        let step = self.ticks.windows(2).map(|t| t[1] - t[0]).fold(self.high - self.low, f64::min);
        // Steps of 2.5 need one decimal more than their size suggests.
        let decimals = (0..8).find(|d| {
            let scaled = step * 10f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        });
        let text = format!("{tick:.*}", decimals.unwrap_or(3) as usize);
        group(&text)
    }
}

fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    group(&text)
}

/// Groups thousands by thin spaces from five digits on.
fn group(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let whole = match whole.parse() {
        Ok(n) if whole.len() > 4 => super::count(n),
        _ => whole.to_owned(),
    };
    // Minus zero is zero.
    let zero = rest.chars().all(|c| matches!(c, '0' | '.'));
    let sign = if zero { "" } else { sign };
    fraction.map_or_else(|| format!("{sign}{whole}"), |f| format!("{sign}{whole}.{f}"))
}

fn superscript(number: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = number.to_string();
    digits.chars().map(|c| c.to_digit(10).map_or('⁻', |d| DIGITS[d as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], log: bool, snug: bool) -> String {
        let axis = Axis::new(values.iter().copied(), log, 6, snug);
        axis.ticks.iter().map(|t| axis.label(*t)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_fall_on_round_numbers() {
        assert_eq!(labels(&[0.5, 2.0], false, true), "0.50 0.75 1.00 1.25 1.50 1.75 2.00");
        assert_eq!(labels(&[3.0, 97.0], false, false), "0 20 40 60 80 100");
        assert_eq!(labels(&[81.2, 99.7], false, false), "80 85 90 95 100");
        assert_eq!(labels(&[92.0, 100.02], false, false), "92 94 96 98 100");
        // Differences that say nothing get no ticks.
        assert_eq!(labels(&[96.3512, 96.3513], false, false), "95.0 95.5 96.0 96.5 97.0 97.5");
        assert_eq!(labels(&[-0.3, 0.3], false, false), "−0.3 −0.2 −0.1 0.0 0.1 0.2 0.3");
        let large = labels(&[0.0, 250_000.0], false, false).replace('\u{202f}', "_");
        assert_eq!(large, "0 50_000 100_000 150_000 200_000 250_000");
        assert_eq!(labels(&[1.0, 1000.0], true, true), "1 2 5 10 20 50 100 200 500 1000");
        assert_eq!(labels(&[1e-6, 10.0], true, true), "10⁻⁶ 10⁻⁵ 10⁻⁴ 10⁻³ 0.01 0.1 1 10");
        assert_eq!(labels(&[4.0, 64.0], true, true), "5 7 10 15 20 30 50");
    }

    #[test]
    fn every_value_has_a_place() {
        for (values, log) in [
            (vec![5.0, 5.0], false),
            (vec![0.0], false),
            (vec![], false),
            (vec![5.0], true),
            (vec![0.0, -1.0], true),
            (vec![1e-300, 1e300], true),
            (vec![-1e300, 1e300], false),
            (vec![1e15, 1e15 + 0.5], false),
        ] {
            let axis = Axis::new(values.iter().copied(), log, 6, false);
            assert!(axis.ticks.len() < 80, "{values:?}: {} ticks", axis.ticks.len());
            for v in values.iter().copied().chain([0.0, 1.0]) {
                assert!((0.0..=1.0).contains(&axis.place(v)), "{values:?} {v} {}", axis.place(v));
            }
            axis.ticks.iter().for_each(|t| assert!(!axis.label(*t).is_empty()));
        }
        let axis = Axis::new([0.0, 10.0].into_iter(), false, 6, true);
        assert_eq!((axis.place(0.0), axis.place(5.0), axis.place(10.0)), (0.0, 0.5, 1.0));
    }
}
