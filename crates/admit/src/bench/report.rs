//! What was measured, as a table for people and one JSON object for programs.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::output::{self, Failure};

/// How the name of a line ends that was measured with few keys.
const WITH_FEW_KEYS: &str = "_100k_known";

/// A turn is quiet if the host took no more than this part of it, of all cores together: 20 ms of half a
/// second, which is too little for any wait that matters.
const QUIET: f64 = 0.04;

/// One line: how many in how long, and how long each took.
pub(super) struct Figure {
    count: u64,
    elapsed: Duration,
    latencies: Option<Histogram<u64>>,
    /// Its turns, where it was measured by turns.
    turns: Vec<Turn>,
    /// The first of the lines that it took turns with.
    group: Option<&'static str>,
}

/// One of the turns of a line.
struct Turn {
    count: u64,
    elapsed: Duration,
    latencies: Option<Histogram<u64>>,
    /// How much core time the host took meanwhile, where that is known.
    stolen: Option<Duration>,
}

impl Turn {
    /// Whether the host took nothing to speak of, as far as anybody knows.
    fn is_quiet(&self) -> bool {
        self.stolen.is_none_or(|stolen| part(stolen, self.elapsed) <= QUIET)
    }
}

impl Figure {
    /// A rate with the latency of each answer, in microseconds.
    pub(super) fn timed(elapsed: Duration, latencies: Histogram<u64>) -> Self {
        Self::stepped(latencies.len(), elapsed, latencies)
    }

    /// `count` in `elapsed`, with the latency of each commit or step.
    pub(super) fn stepped(count: u64, elapsed: Duration, latencies: Histogram<u64>) -> Self {
        Self { latencies: Some(latencies), ..Self::counted(count, elapsed) }
    }

    /// The same as a turn of a line that takes turns with those of `group`, while the host took so much.
    pub(super) fn into_turn(mut self, group: &'static str, stolen: Option<Duration>) -> Self {
        let (count, elapsed, latencies) = (self.count, self.elapsed, self.latencies.clone());
        self.turns = vec![Turn { count, elapsed, latencies, stolen }];
        self.group = Some(group);
        self
    }

    /// `count` in `elapsed`, of which each took who knows how long.
    pub(super) fn counted(count: u64, elapsed: Duration) -> Self {
        Self { count, elapsed, latencies: None, turns: Vec::new(), group: None }
    }

    /// How many cores were missing on the average because the host had taken them.
    fn stolen(&self) -> Option<f64> {
        let stolen: Option<Duration> = self.turns.iter().map(|turn| turn.stolen).sum();
        stolen.filter(|_| !self.turns.is_empty()).map(|stolen| part(stolen, self.elapsed))
    }

    /// What it comes to in its quiet turns; none if there were none.
    fn quiet(&self) -> Option<Quiet> {
        let turns: Vec<&Turn> = self.turns.iter().filter(|turn| turn.is_quiet()).collect();
        let mut latencies = turns.first()?.latencies.clone()?;
        for more in turns.iter().skip(1).filter_map(|turn| turn.latencies.as_ref()) {
            latencies.add(more).expect("it grows as it needs to");
        }
        let per_second = rate(&turns);
        Some(Quiet { turns: turns.len(), per_second, latencies })
    }

    /// Its rate as a ratio to that of a line that it took turns with, and from how many of them: those in
    /// which both were quiet.
    fn quiet_ratio(&self, other: &Self) -> Option<(f64, usize)> {
        self.group.filter(|group| other.group == Some(group))?;
        let both = self.turns.iter().zip(&other.turns);
        let both = both.filter(|(one, other)| one.is_quiet() && other.is_quiet());
        let (ours, theirs): (Vec<&Turn>, Vec<&Turn>) = both.unzip();
        (!ours.is_empty()).then(|| (rate(&ours) / rate(&theirs), ours.len()))
    }

    /// The same line, measured for a while longer.
    pub(super) fn add(&mut self, more: Self) -> Result<(), Failure> {
        self.count += more.count;
        self.elapsed += more.elapsed;
        self.turns.extend(more.turns);
        if let (Some(all), Some(more)) = (&mut self.latencies, more.latencies) {
            all.add(more).map_err(Failure::runtime)?;
        }
        Ok(())
    }

    pub(super) fn per_second(&self) -> f64 {
        per_second(self.count, self.elapsed)
    }

    /// The line for a program, which is a ratio to `all` if to anything.
    fn json(&self, all: Option<&Self>) -> Value {
        let mut line = Map::new();
        line.insert("per_s".to_owned(), json!(self.per_second().round()));
        line.insert("count".to_owned(), json!(self.count));
        if let Some(latencies) = &self.latencies {
            line.insert("p50_us".to_owned(), json!(latencies.value_at_quantile(0.5)));
            line.insert("p99_us".to_owned(), json!(latencies.value_at_quantile(0.99)));
            line.insert("max_us".to_owned(), json!(latencies.max()));
        }
        if !self.turns.is_empty() {
            let ratio = all.and_then(|all| self.quiet_ratio(all));
            line.insert("stolen".to_owned(), json!(self.stolen().map(rounded)));
            line.insert("turns".to_owned(), json!(self.turns.len()));
            line.insert("quiet".to_owned(), json!(self.quiet().map(|quiet| quiet.json(ratio))));
        }
        Value::Object(line)
    }
}

/// What a line comes to in its quiet turns.
struct Quiet {
    turns: usize,
    per_second: f64,
    latencies: Histogram<u64>,
}

impl Quiet {
    fn json(&self, ratio: Option<(f64, usize)>) -> Value {
        json!({
            "turns": self.turns,
            "per_s": self.per_second.round(),
            "p50_us": self.latencies.value_at_quantile(0.5),
            "p99_us": self.latencies.value_at_quantile(0.99),
            "max_us": self.latencies.max(),
            "ratio": ratio.map(|(ratio, _)| rounded(ratio)),
            "ratio_turns": ratio.map(|(_, turns)| turns),
        })
    }
}

/// How many a second in these turns.
fn rate(turns: &[&Turn]) -> f64 {
    let count = turns.iter().map(|turn| turn.count).sum();
    per_second(count, turns.iter().map(|turn| turn.elapsed).sum())
}

/// To three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(1e-9)
}

fn part(of: Duration, all: Duration) -> f64 {
    of.as_secs_f64() / all.as_secs_f64().max(1e-9)
}

/// All lines of a run.
pub(super) struct Report {
    json: bool,
    lines: Vec<(&'static str, Figure)>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, lines: Vec::new() }
    }

    /// Adds a line, and tells a person waiting that it is done.
    pub(super) fn add(&mut self, name: &'static str, figure: Figure) {
        if !self.json {
            output::aside(&format!("{name}: {:.0} per second", figure.per_second()));
        }
        self.lines.push((name, figure));
    }

    /// Tells a person what is measured next, and for how long.
    pub(super) fn begin(&self, names: &[&str], all: Duration) {
        if !self.json {
            output::aside(&format!("{}: {} s ...", names.join(", "), all.as_secs()));
        }
    }

    /// The rate of a line, if it was measured.
    pub(super) fn per_second(&self, name: &str) -> Option<f64> {
        self.of(name).map(Figure::per_second)
    }

    fn of(&self, name: &str) -> Option<&Figure> {
        self.lines.iter().find(|(line, _)| *line == name).map(|(_, figure)| figure)
    }

    /// What a line is a ratio of: the same with few keys, or what stands for the whole table.
    fn reference(&self, line: &str) -> Option<&Figure> {
        let what = line.strip_suffix(WITH_FEW_KEYS).unwrap_or(line);
        // In a database, single inserts on the same server are what anybody would do instead.
        self.of(&format!("{what}{WITH_FEW_KEYS}"))
            .or(self.of("insert"))
            .or(self.of("ceiling"))
            .or(self.of("publish_bus").and(self.of("publish")))
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        if self.json {
            let lines = self
                .lines
                .iter()
                .map(|(name, figure)| ((*name).to_owned(), figure.json(self.reference(name))));
            return output::print_json(&Value::Object(lines.collect()));
        }
        let rows = self.lines.iter().map(|(name, figure)| self.row(name, figure));
        let of_all = ["what", "per second", "ratio", "p50 us", "p99 us", "max us", "stolen"];
        let of_quiet = ["quiet", "quiet ratio", "quiet p99", "quiet max"];
        let heads = [&of_all[..], &of_quiet].concat();
        output::print(&output::table(&heads, rows))
    }

    /// A line of the table: all of it, and then its quiet turns.
    fn row(&self, name: &str, figure: &Figure) -> Vec<String> {
        let latency =
            |pick: fn(&Histogram<u64>) -> u64| in_cell(figure.latencies.as_ref().map(pick));
        let all = self.reference(name);
        let ratio = |all: &Figure| format!("{:.2}", figure.per_second() / all.per_second());
        let (quiet, turns) = (figure.quiet(), figure.turns.len());
        let of_quiet = |pick: fn(&Quiet) -> u64| in_cell(quiet.as_ref().map(pick));
        let quiet_turns = quiet.as_ref().map_or(0, |quiet| quiet.turns);
        let quiet_ratio = all.and_then(|all| figure.quiet_ratio(all));
        vec![
            name.to_owned(),
            format!("{:.0}", figure.per_second()),
            in_cell(all.map(ratio)),
            latency(|all| all.value_at_quantile(0.5)),
            latency(|all| all.value_at_quantile(0.99)),
            latency(Histogram::max),
            in_cell(figure.stolen().map(|cores| format!("{cores:.2}"))),
            in_cell((turns > 0).then(|| format!("{quiet_turns}/{turns}"))),
            in_cell(quiet_ratio.map(|(ratio, turns)| format!("{ratio:.2} ({turns})"))),
            of_quiet(|quiet| quiet.latencies.value_at_quantile(0.99)),
            of_quiet(|quiet| quiet.latencies.max()),
        ]
    }
}

/// What is not there is left empty.
fn in_cell(what: Option<impl ToString>) -> String {
    what.map(|what| what.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::client::histogram;

    /// A turn of half a second, with these latencies in microseconds, while the host took so many
    /// milliseconds.
    fn turn(latencies: &[u64], stolen: Option<u64>) -> Figure {
        let mut all = histogram();
        for micros in latencies {
            all.record(*micros).unwrap();
        }
        let elapsed = Duration::from_millis(500);
        Figure::timed(elapsed, all).into_turn("first", stolen.map(Duration::from_millis))
    }

    /// A line of such turns.
    fn line(turns: &[(&[u64], u64)]) -> Figure {
        let mut turns = turns.iter().map(|(latencies, stolen)| turn(latencies, Some(*stolen)));
        let mut all = turns.next().unwrap();
        turns.for_each(|turn| all.add(turn).unwrap());
        all
    }

    #[test]
    fn a_wait_in_a_turn_that_the_host_disturbed_is_not_one_of_the_quiet_turns() {
        let told = line(&[(&[100, 200], 20), (&[100, 400, 900], 0), (&[64_000], 180)]).json(None);
        assert!(told["max_us"].as_u64() >= Some(64_000), "the whole line has it: {told}");
        assert_eq!(told["stolen"], json!(0.133));
        assert_eq!(told["turns"], json!(3));
        let quiet = json!({
            "turns": 2, "per_s": 5.0, "p50_us": 200, "p99_us": 900, "max_us": 900,
            "ratio": null, "ratio_turns": null,
        });
        assert_eq!(told["quiet"], quiet, "{told}");
    }

    #[test]
    fn a_quiet_ratio_is_of_turns_in_which_both_lines_were_quiet() {
        let many: &[u64] = &[100; 8];
        let all = line(&[(&[100; 16], 0), (many, 0), (many, 300), (many, 0)]);
        let half = line(&[(many, 300), (&[100; 4], 0), (many, 0), (&[100; 2], 0)]);
        let told = half.json(Some(&all));
        assert_eq!(
            (&told["quiet"]["ratio"], &told["quiet"]["ratio_turns"]),
            (&json!(0.375), &json!(2))
        );
    }

    #[test]
    fn lines_that_did_not_take_turns_have_no_quiet_ratio() {
        let one = turn(&[100], Some(0));
        let other = Figure { group: Some("other"), ..turn(&[100], Some(0)) };
        assert_eq!(one.quiet_ratio(&other), None);
        assert_eq!(one.quiet_ratio(&Figure::counted(1, Duration::from_secs(1))), None);
        assert_eq!(one.quiet_ratio(&turn(&[100], Some(0))), Some((1.0, 1)));
    }

    #[test]
    fn a_line_without_a_quiet_turn_says_so() {
        let told = turn(&[100], Some(21)).json(None);
        assert_eq!(told["quiet"], Value::Null, "{told}");
        assert_eq!(told["stolen"], json!(0.042));
    }

    #[test]
    fn where_nobody_counts_what_the_host_takes_every_turn_is_quiet() {
        let told = turn(&[100], None).json(None);
        assert_eq!(told["stolen"], Value::Null, "{told}");
        assert_eq!(told["quiet"]["turns"], json!(1));
    }

    #[test]
    fn a_line_that_was_not_measured_by_turns_tells_nothing_of_the_host() {
        let told = Figure::counted(7, Duration::from_secs(1)).json(None);
        assert_eq!(told, json!({ "per_s": 7.0, "count": 7 }));
    }
}
