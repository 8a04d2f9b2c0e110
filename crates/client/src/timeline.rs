//! Timelines of repairs: a table of the steps, and a drawing with a row for each stripe.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use views::{RepairItem, RepairStep, RepairView};

/// The maximum number of rows of a drawing. If there are more stripes, an even sample is drawn.
const ROWS: usize = 40;
/// The number of columns of a drawing.
const COLUMNS: usize = 64;
/// The width of the column with the names of stripes.
const NAMES: usize = 14;

/// The times of the steps of stripes, over one or several repairs. `Display` prints a table and a drawing.
///
/// Each interval ends when a step is reached, and begins when the step before it was. Simultaneous
/// steps are counted once: a block that is recorded while it is read back counts for the interval that ends first.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    stripes: Vec<Stripe>,
}

#[derive(Clone, Debug)]
struct Stripe {
    name: String,
    queued: Duration,
    /// The end of each interval, in the order of steps, and never decreasing.
    ends: Vec<(RepairStep, Duration)>,
}

impl Timeline {
    /// Returns the common timeline of repairs. It begins with the first of them. The views must contain the
    /// stripes of their repairs.
    pub fn of(views: &[RepairView]) -> Self {
        let begin = views.iter().map(|view| view.started_unix_ms).min().unwrap_or_default();
        let mut timeline = Self::default();
        for view in views {
            let queued = Duration::from_millis(view.started_unix_ms - begin);
            view.items.iter().for_each(|item| timeline.add(queued, item));
        }
        timeline
    }

    /// Adds a stripe of a repair that was queued at this time.
    fn add(&mut self, queued: Duration, item: &RepairItem) {
        let mut latest = queued;
        let ends = item.timeline_us.iter().map(|(&step, &us)| {
            latest = latest.max(queued + Duration::from_micros(us));
            (step, latest)
        });
        let ends: Vec<_> = ends.collect();
        if !ends.is_empty() {
            self.stripes.push(Stripe { name: item.stripe.clone(), queued, ends });
        }
    }

    /// Returns the time when the last stripe reached its last step.
    fn end(&self) -> Duration {
        self.stripes.iter().map(Stripe::end).max().unwrap_or_default()
    }

    /// Returns the lengths of each step's intervals, shortest first.
    fn lengths(&self) -> BTreeMap<RepairStep, Vec<Duration>> {
        let mut lengths: BTreeMap<RepairStep, Vec<Duration>> = BTreeMap::new();
        for (step, from, to) in self.stripes.iter().flat_map(Stripe::intervals) {
            lengths.entry(step).or_default().push(to - from);
        }
        lengths.values_mut().for_each(|lengths| lengths.sort_unstable());
        lengths
    }

    /// Returns how long slices of any stripe were moving, and the average number of stripes whose slices moved
    /// in that time.
    fn moving(&self) -> (Duration, f64) {
        let intervals = self.stripes.iter().flat_map(Stripe::intervals);
        let mut spans: Vec<(Duration, Duration)> = intervals
            .filter(|&(step, ..)| step == RepairStep::Delivered)
            .map(|(_, from, to)| (from, to))
            .collect();
        spans.sort_unstable();
        let (mut covered, mut until) = (Duration::ZERO, Duration::ZERO);
        for &(from, to) in &spans {
            covered += to.saturating_sub(from.max(until));
            until = until.max(to);
        }
        let in_all: Duration = spans.iter().map(|&(from, to)| to - from).sum();
        (covered, in_all.as_secs_f64() / covered.as_secs_f64().max(1e-9))
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let lengths = self.lengths();
        let in_all: Duration = lengths.values().flatten().sum();
        let mut text = format!(
            "   {:32}{:>9}{:>9}{:>9}{:>8}\n",
            "time until this step", "median", "p90", "max", "share"
        );
        for (&step, lengths) in &lengths {
            let at = |part: usize| lengths[(lengths.len() - 1) * part / 10];
            let sum: Duration = lengths.iter().sum();
            let share = 100.0 * sum.as_secs_f64() / in_all.as_secs_f64().max(1e-9);
            let name = described(step);
            let [median, p90, max] = [at(5), at(9), at(10)].map(seconds);
            let _ = writeln!(text, "{}  {name:32}{median:>9}{p90:>9}{max:>9}{share:>7.0}%", letter(step));
        }
        let (covered, beside) = self.moving();
        let _ = writeln!(
            text,
            "slices moved for {} of {}, of {beside:.1} stripes at a time on average",
            seconds(covered),
            seconds(self.end())
        );
        text
    }

    fn drawing(&self) -> String {
        let mut stripes: Vec<&Stripe> = self.stripes.iter().collect();
        stripes.sort_by_key(|stripe| (stripe.started(), stripe.end(), stripe.name.clone()));
        let rows = stripes.len().min(ROWS);
        let end = self.end();
        let mut text =
            format!("{:NAMES$}  0{:>width$}\n", "stripe", seconds(end), width = COLUMNS.saturating_sub(1));
        for row in 0..rows {
            let stripe = stripes[row * stripes.len() / rows];
            let line: String = (0..COLUMNS).map(|column| stripe.letter_at(middle(end, column))).collect();
            let _ = writeln!(text, "{:NAMES$}  {}", short(&stripe.name), line.trim_end());
        }
        if stripes.len() > rows {
            let _ = writeln!(text, "({rows} of {} stripes)", stripes.len());
        }
        let counts: String = (0..COLUMNS).map(|column| digit(self.moving_at(middle(end, column)))).collect();
        let _ = writeln!(text, "{:NAMES$}  {}", "moving", counts.trim_end());
        text
    }

    /// Returns the number of stripes whose slices move at this time.
    fn moving_at(&self, at: Duration) -> usize {
        let moves = |stripe: &&Stripe| stripe.step_at(at) == Some(RepairStep::Delivered);
        self.stripes.iter().filter(moves).count()
    }
}

impl Stripe {
    fn end(&self) -> Duration {
        self.ends.last().map_or(self.queued, |&(_, end)| end)
    }

    fn started(&self) -> Duration {
        let started = self.ends.iter().find(|(step, _)| *step >= RepairStep::Started);
        started.map_or(Duration::MAX, |&(_, at)| at)
    }

    /// Returns each interval with the step that ends it.
    fn intervals(&self) -> impl Iterator<Item = (RepairStep, Duration, Duration)> + '_ {
        let mut from = self.queued;
        self.ends.iter().map(move |&(step, to)| (step, std::mem::replace(&mut from, to), to))
    }

    /// Returns the step that ends the interval at this time.
    fn step_at(&self, at: Duration) -> Option<RepairStep> {
        let mut intervals = self.intervals();
        intervals.find(|&(_, from, to)| from <= at && at < to).map(|(step, ..)| step)
    }

    fn letter_at(&self, at: Duration) -> char {
        self.step_at(at).map_or(' ', letter)
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stripes.is_empty() {
            return f.write_str("no stripe was started\n");
        }
        write!(f, "{}\n{}", self.table(), self.drawing())
    }
}

/// Returns the letter of a step in the drawing.
const fn letter(step: RepairStep) -> char {
    match step {
        RepairStep::Planned => '.',
        RepairStep::Claimed => 'c',
        RepairStep::Started => 'w',
        RepairStep::FirstSlice => '>',
        RepairStep::Delivered => '#',
        RepairStep::Sealed => 's',
        RepairStep::Checked => 'p',
        RepairStep::Committed => 'k',
        RepairStep::Recorded => 'r',
        RepairStep::Ended => 'e',
    }
}

/// Describes a step in the table.
const fn described(step: RepairStep) -> &'static str {
    match step {
        RepairStep::Planned => "planned (its turn came)",
        RepairStep::Claimed => "claimed in the store",
        RepairStep::Started => "started (bandwidth was free)",
        RepairStep::FirstSlice => "first slice arrived",
        RepairStep::Delivered => "all slices arrived",
        RepairStep::Sealed => "sealed (fsync, digest)",
        RepairStep::Checked => "parity checked",
        RepairStep::Committed => "committed on its helper",
        RepairStep::Recorded => "recorded; listed by the store",
        RepairStep::Ended => "ended (read back)",
    }
}

/// Returns the time in the middle of a column.
fn middle(end: Duration, column: usize) -> Duration {
    end.mul_f64((column as f64 + 0.5) / COLUMNS as f64)
}

fn digit(count: usize) -> char {
    match count {
        0 => ' ',
        count => u32::try_from(count).ok().and_then(|count| char::from_digit(count, 10)).unwrap_or('+'),
    }
}

/// Shortens the name of a stripe to the end of the name, where stripes differ.
fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAMES {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length - (NAMES - 1))).collect()
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(stripe: &str, steps: &[(&str, u64)]) -> RepairItem {
        let timeline: BTreeMap<&str, u64> = steps.iter().map(|&(step, ms)| (step, ms * 1000)).collect();
        let view = serde_json::json!({
            "stripe": stripe, "state": "done", "blocks": [], "rebuilt": [], "scheme": null, "parity": null,
            "reason": null, "next_step": null, "replanned": [], "job": null, "timeline_us": timeline,
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn a_timeline_shows_where_the_time_went() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.to_string(), "no stripe was started\n");
        let first =
            [("planned", 0), ("started", 0), ("first-slice", 100), ("delivered", 900), ("ended", 1000)];
        timeline.add(Duration::ZERO, &item("1-k3f9x2", &first));
        let second = [
            ("planned", 800),
            ("claimed", 1000),
            ("started", 1000),
            ("first-slice", 1100),
            ("delivered", 1900),
            ("recorded", 2000),
            ("ended", 1950),
        ];
        timeline.add(Duration::ZERO, &item("group_9223372036854775792_1001", &second));
        assert_eq!(
            timeline.to_string(),
            "   time until this step               median      p90      max   share\n\
             .  planned (its turn came)            0.0 ms   0.0 ms 800.0 ms     27%\n\
             c  claimed in the store             200.0 ms 200.0 ms 200.0 ms      7%\n\
             w  started (bandwidth was free)       0.0 ms   0.0 ms   0.0 ms      0%\n\
             >  first slice arrived              100.0 ms 100.0 ms 100.0 ms      7%\n\
             #  all slices arrived               800.0 ms 800.0 ms 800.0 ms     53%\n\
             r  recorded; listed by the store    100.0 ms 100.0 ms 100.0 ms      3%\n\
             e  ended (read back)                  0.0 ms   0.0 ms 100.0 ms      3%\n\
             slices moved for 1.60 s of 2.00 s, of 1.0 stripes at a time on average\n\
             \n\
             stripe          0                                                         2.00 s\n\
             1-k3f9x2        >>>##########################eee\n\
             …54775792_1001  ..........................cccccc>>>##########################rrr\n\
             moving             11111111111111111111111111      11111111111111111111111111\n"
        );
    }

    #[test]
    fn many_stripes_are_sampled() {
        let mut timeline = Timeline::default();
        for number in 0..100 {
            let steps = [("started", number), ("first-slice", number), ("delivered", 200)];
            timeline.add(Duration::from_millis(5), &item(&format!("{number}-a"), &steps));
        }
        let text = timeline.to_string();
        assert!(text.contains("(40 of 100 stripes)"), "{text}");
        assert!(text.lines().last().unwrap().ends_with('+'), "{text}");
        assert_eq!(timeline.end(), Duration::from_millis(205));
    }
}
