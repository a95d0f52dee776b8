//! Maps numbers to positions on an axis.

/// A range of numbers mapped to a range of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// A range that contains these numbers, all above 0 if it is logarithmic. A linear range starts
    /// at 0 unless a number is below.
    pub(super) fn of(numbers: impl Iterator<Item = f64>, log: bool, start: f64, end: f64) -> Self {
        let range = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), number| {
            (least.min(number), most.max(number))
        });
        let (from, to) = match range {
            (least, most) if least > most => (1.0, 10.0),
            (least, most) if log => (least / 1.15, most * 1.15),
            (least, most) => (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
        };
        Self { from, to, log, start, end }
    }

    /// Like [`of`](Self::of), but need not start at 0.
    pub(super) fn around(
        numbers: impl Iterator<Item = f64> + Clone,
        log: bool,
        start: f64,
        end: f64,
    ) -> Self {
        let scale = Self::of(numbers.clone(), log, start, end);
        let least = numbers.fold(f64::INFINITY, f64::min);
        if log || !least.is_finite() {
            return scale;
        }
        let margin = 0.05 * (scale.to - least);
        Self { from: least - margin, ..scale }
    }

    /// A linear range.
    pub(super) fn between(from: f64, to: f64, start: f64, end: f64) -> Self {
        Self { from, to, log: false, start, end }
    }

    /// The position of a number.
    pub(super) fn place(&self, number: f64) -> f64 {
        let share = if self.log {
            (number / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        };
        self.start + share * (self.end - self.start)
    }

    /// Round numbers within the range, about four to nine.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = round_step((self.to - self.from) / 6.0);
            let ends = ((self.from / step).ceil() as i64, (self.to / step).floor() as i64);
            return (ends.0..=ends.1).map(|i| i as f64 * step).collect();
        }
        let decades = (self.to / self.from).log10();
        if decades < 0.5 {
            return Self { log: false, ..*self }.ticks().into_iter().filter(|t| *t > 0.0).collect();
        }
        let within: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let ticks = powers.flat_map(|power| within.iter().map(move |w| w * 10_f64.powi(power)));
        ticks.filter(|tick| (self.from..=self.to).contains(tick)).collect()
    }
}

/// The label of a tick, without trailing zeros; from ten thousand on in thousands, millions or
/// billions.
pub(super) fn label(tick: f64) -> String {
    let (number, unit) = match tick.abs() {
        large if large >= 1e9 => (tick / 1e9, "G"),
        large if large >= 1e6 => (tick / 1e6, "M"),
        large if large >= 1e4 => (tick / 1e3, "k"),
        _ => (tick, ""),
    };
    // Multiples of a step have rounding errors in the last digits.
    let text = format!("{number:.6}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_in_range() {
        let linear = Scale::of([3.0, 57.0].into_iter(), false, 0.0, 100.0);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert!((linear.place(57.0) - 100.0 / 1.05).abs() < 1e-9);
        let log = Scale::of([0.02, 150.0].into_iter(), true, 0.0, 100.0);
        assert_eq!(log.ticks(), [0.1, 1.0, 10.0, 100.0]);
        let numbers = [0.1, 3.0 * 0.1, 200.0, 5000.0, 2e4, 1.5e6, 1e9];
        assert_eq!(numbers.map(label), ["0.1", "0.3", "200", "5000", "20k", "1.5M", "1G"]);
        let narrow = Scale::of([20.0, 22.0].into_iter(), true, 0.0, 1.0);
        assert!(narrow.ticks().len() > 2, "{:?}", narrow.ticks());
        assert!(!Scale::of(std::iter::empty(), true, 0.0, 1.0).ticks().is_empty());
        let skews = Scale::around([0.75, 1.75].into_iter(), false, 0.0, 100.0);
        let labels: Vec<String> = skews.ticks().into_iter().map(label).collect();
        assert_eq!(labels, ["0.8", "1", "1.2", "1.4", "1.6", "1.8"]);
        let still = Scale::of([0.0].into_iter(), false, 0.0, 1.0);
        assert!(still.place(0.0).is_finite() && !still.ticks().is_empty());
    }
}
