//! Report of the bench: a table for people, one JSON object for programs.
//!
//! A round is `turn` in the JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::output::{self, Failure};

/// Suffix of lines that are measured with few keys.
const WITH_FEW_KEYS: &str = "_100k_known";

/// A round is quiet if steal time is at most this share of it, of all cores together: 20 ms of half a
/// second.
const QUIET_STEAL_MAX: f64 = 0.04;

/// Measurement of one line: count, duration and latencies.
pub(super) struct Figure {
    count: u64,
    elapsed: Duration,
    latencies: Option<Histogram<u64>>,
    /// Its rounds, if it was measured in interleaved rounds.
    rounds: Vec<BenchRound>,
    /// Name of the first line that it was interleaved with.
    group: Option<&'static str>,
}

/// One round of a line.
struct BenchRound {
    count: u64,
    elapsed: Duration,
    latencies: Option<Histogram<u64>>,
    /// Steal time during the round, if known.
    stolen: Option<Duration>,
}

impl BenchRound {
    /// Whether there was no relevant steal time. True if it is unknown.
    fn is_quiet(&self) -> bool {
        self.stolen.is_none_or(|stolen| share(stolen, self.elapsed) <= QUIET_STEAL_MAX)
    }
}

impl Figure {
    /// A figure with one latency per event, in microseconds.
    pub(super) fn timed(elapsed: Duration, latencies: Histogram<u64>) -> Self {
        Self::batched(latencies.len(), elapsed, latencies)
    }

    /// A figure with one latency per batch or request.
    pub(super) fn batched(count: u64, elapsed: Duration, latencies: Histogram<u64>) -> Self {
        Self { latencies: Some(latencies), ..Self::counted(count, elapsed) }
    }

    /// Turns the figure into one round of a line in the interleaved `group`.
    pub(super) fn into_round(mut self, group: &'static str, stolen: Option<Duration>) -> Self {
        let (count, elapsed, latencies) = (self.count, self.elapsed, self.latencies.clone());
        self.rounds = vec![BenchRound { count, elapsed, latencies, stolen }];
        self.group = Some(group);
        self
    }

    /// A figure without latencies.
    pub(super) fn counted(count: u64, elapsed: Duration) -> Self {
        Self { count, elapsed, latencies: None, rounds: Vec::new(), group: None }
    }

    /// Average number of cores that the host took (steal time per elapsed time).
    fn stolen(&self) -> Option<f64> {
        let stolen: Option<Duration> = self.rounds.iter().map(|round| round.stolen).sum();
        stolen.filter(|_| !self.rounds.is_empty()).map(|stolen| share(stolen, self.elapsed))
    }

    /// Statistics of the quiet rounds; `None` if there are none.
    fn quiet(&self) -> Option<QuietStats> {
        let rounds: Vec<&BenchRound> =
            self.rounds.iter().filter(|round| round.is_quiet()).collect();
        let mut latencies = rounds.first()?.latencies.clone()?;
        for more in rounds.iter().skip(1).filter_map(|round| round.latencies.as_ref()) {
            latencies.add(more).expect("the histogram resizes itself");
        }
        let per_second = rate(&rounds);
        Some(QuietStats { rounds: rounds.len(), per_second, latencies })
    }

    /// Ratio of its rate to that of an interleaved line, over the rounds in which both were quiet, and
    /// the number of these rounds.
    fn quiet_ratio(&self, other: &Self) -> Option<(f64, usize)> {
        self.group.filter(|group| other.group == Some(group))?;
        let both = self.rounds.iter().zip(&other.rounds);
        let both = both.filter(|(one, other)| one.is_quiet() && other.is_quiet());
        let (ours, theirs): (Vec<&BenchRound>, Vec<&BenchRound>) = both.unzip();
        (!ours.is_empty()).then(|| (rate(&ours) / rate(&theirs), ours.len()))
    }

    /// Adds another measurement of the same line.
    pub(super) fn add(&mut self, more: Self) -> Result<(), Failure> {
        self.count += more.count;
        self.elapsed += more.elapsed;
        self.rounds.extend(more.rounds);
        if let (Some(all), Some(more)) = (&mut self.latencies, more.latencies) {
            all.add(more).map_err(Failure::runtime)?;
        }
        Ok(())
    }

    pub(super) fn per_second(&self) -> f64 {
        per_second(self.count, self.elapsed)
    }

    /// The line as JSON, with its ratio to `reference`.
    fn json(&self, reference: Option<&Self>) -> Value {
        let mut line = Map::new();
        line.insert("per_s".to_owned(), json!(self.per_second().round()));
        line.insert("count".to_owned(), json!(self.count));
        if let Some(latencies) = &self.latencies {
            line.insert("p50_us".to_owned(), json!(latencies.value_at_quantile(0.5)));
            line.insert("p99_us".to_owned(), json!(latencies.value_at_quantile(0.99)));
            line.insert("max_us".to_owned(), json!(latencies.max()));
        }
        if !self.rounds.is_empty() {
            let ratio = reference.and_then(|reference| self.quiet_ratio(reference));
            line.insert("stolen".to_owned(), json!(self.stolen().map(rounded)));
            line.insert("turns".to_owned(), json!(self.rounds.len()));
            line.insert("quiet".to_owned(), json!(self.quiet().map(|quiet| quiet.json(ratio))));
        }
        Value::Object(line)
    }
}

/// Statistics of the quiet rounds of a line.
struct QuietStats {
    rounds: usize,
    per_second: f64,
    latencies: Histogram<u64>,
}

impl QuietStats {
    fn json(&self, ratio: Option<(f64, usize)>) -> Value {
        json!({
            "turns": self.rounds,
            "per_s": self.per_second.round(),
            "p50_us": self.latencies.value_at_quantile(0.5),
            "p99_us": self.latencies.value_at_quantile(0.99),
            "max_us": self.latencies.max(),
            "ratio": ratio.map(|(ratio, _)| rounded(ratio)),
            "ratio_turns": ratio.map(|(_, rounds)| rounds),
        })
    }
}

/// Rate per second over several rounds.
fn rate(rounds: &[&BenchRound]) -> f64 {
    let count = rounds.iter().map(|round| round.count).sum();
    per_second(count, rounds.iter().map(|round| round.elapsed).sum())
}

/// Rounds to three decimals.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(1e-9)
}

fn share(of: Duration, all: Duration) -> f64 {
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

    /// Adds a line, and prints progress.
    pub(super) fn add(&mut self, name: &'static str, figure: Figure) {
        if !self.json {
            output::print_stderr(&format!("{name}: {:.0} per second", figure.per_second()));
        }
        self.lines.push((name, figure));
    }

    /// Prints which lines are measured next, and for how long.
    pub(super) fn begin(&self, names: &[&str], all: Duration) {
        if !self.json {
            output::print_stderr(&format!("{}: {} s ...", names.join(", "), all.as_secs()));
        }
    }

    /// The rate of a line, if it was measured.
    pub(super) fn per_second(&self, name: &str) -> Option<f64> {
        self.of(name).map(Figure::per_second)
    }

    fn of(&self, name: &str) -> Option<&Figure> {
        self.lines.iter().find(|(line, _)| *line == name).map(|(_, figure)| figure)
    }

    /// Reference line of a ratio: the same line with few keys, or the baseline of the table.
    fn reference(&self, line: &str) -> Option<&Figure> {
        let name = line.strip_suffix(WITH_FEW_KEYS).unwrap_or(line);
        // In a database the baseline is single inserts on the same server.
        self.of(&format!("{name}{WITH_FEW_KEYS}"))
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
        let of_all = ["line", "per second", "ratio", "p50 us", "p99 us", "max us", "stolen"];
        let of_quiet = ["quiet", "quiet ratio", "quiet p99", "quiet max"];
        let heads = [&of_all[..], &of_quiet].concat();
        output::print(&output::table(&heads, rows))
    }

    /// A row of the table: all rounds, then the quiet rounds.
    fn row(&self, name: &str, figure: &Figure) -> Vec<String> {
        let latency =
            |pick: fn(&Histogram<u64>) -> u64| in_cell(figure.latencies.as_ref().map(pick));
        let reference = self.reference(name);
        let ratio = |of: &Figure| format!("{:.2}", figure.per_second() / of.per_second());
        let (quiet, rounds) = (figure.quiet(), figure.rounds.len());
        let of_quiet = |pick: fn(&QuietStats) -> u64| in_cell(quiet.as_ref().map(pick));
        let quiet_rounds = quiet.as_ref().map_or(0, |quiet| quiet.rounds);
        let quiet_ratio = reference.and_then(|reference| figure.quiet_ratio(reference));
        vec![
            name.to_owned(),
            format!("{:.0}", figure.per_second()),
            in_cell(reference.map(ratio)),
            latency(|all| all.value_at_quantile(0.5)),
            latency(|all| all.value_at_quantile(0.99)),
            latency(Histogram::max),
            in_cell(figure.stolen().map(|cores| format!("{cores:.2}"))),
            in_cell((rounds > 0).then(|| format!("{quiet_rounds}/{rounds}"))),
            in_cell(quiet_ratio.map(|(ratio, rounds)| format!("{ratio:.2} ({rounds})"))),
            of_quiet(|quiet| quiet.latencies.value_at_quantile(0.99)),
            of_quiet(|quiet| quiet.latencies.max()),
        ]
    }
}

/// A table cell, empty for `None`.
fn in_cell(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::client::histogram;

    /// A round of half a second, with latencies in microseconds and steal time in milliseconds.
    fn round(latencies: &[u64], stolen: Option<u64>) -> Figure {
        let mut all = histogram();
        for micros in latencies {
            all.record(*micros).unwrap();
        }
        let elapsed = Duration::from_millis(500);
        Figure::timed(elapsed, all).into_round("first", stolen.map(Duration::from_millis))
    }

    /// A line of such rounds.
    fn line(rounds: &[(&[u64], u64)]) -> Figure {
        let mut rounds = rounds.iter().map(|(latencies, stolen)| round(latencies, Some(*stolen)));
        let mut all = rounds.next().unwrap();
        rounds.for_each(|round| all.add(round).unwrap());
        all
    }

    #[test]
    fn latencies_of_rounds_with_steal_time_are_not_in_the_quiet_statistics() {
        let json = line(&[(&[100, 200], 20), (&[100, 400, 900], 0), (&[64_000], 180)]).json(None);
        assert!(json["max_us"].as_u64() >= Some(64_000), "the line includes it: {json}");
        assert_eq!(json["stolen"], json!(0.133));
        assert_eq!(json["turns"], json!(3));
        let quiet = json!({
            "turns": 2, "per_s": 5.0, "p50_us": 200, "p99_us": 900, "max_us": 900,
            "ratio": null, "ratio_turns": null,
        });
        assert_eq!(json["quiet"], quiet, "{json}");
    }

    #[test]
    fn a_quiet_ratio_uses_rounds_in_which_both_lines_were_quiet() {
        let many: &[u64] = &[100; 8];
        let all = line(&[(&[100; 16], 0), (many, 0), (many, 300), (many, 0)]);
        let half = line(&[(many, 300), (&[100; 4], 0), (many, 0), (&[100; 2], 0)]);
        let json = half.json(Some(&all));
        assert_eq!(
            (&json["quiet"]["ratio"], &json["quiet"]["ratio_turns"]),
            (&json!(0.375), &json!(2))
        );
    }

    #[test]
    fn lines_that_were_not_interleaved_have_no_quiet_ratio() {
        let one = round(&[100], Some(0));
        let other = Figure { group: Some("other"), ..round(&[100], Some(0)) };
        assert_eq!(one.quiet_ratio(&other), None);
        assert_eq!(one.quiet_ratio(&Figure::counted(1, Duration::from_secs(1))), None);
        assert_eq!(one.quiet_ratio(&round(&[100], Some(0))), Some((1.0, 1)));
    }

    #[test]
    fn a_line_without_quiet_rounds_has_no_quiet_statistics() {
        let json = round(&[100], Some(21)).json(None);
        assert_eq!(json["quiet"], Value::Null, "{json}");
        assert_eq!(json["stolen"], json!(0.042));
    }

    #[test]
    fn without_steal_time_every_round_is_quiet() {
        let json = round(&[100], None).json(None);
        assert_eq!(json["stolen"], Value::Null, "{json}");
        assert_eq!(json["quiet"]["turns"], json!(1));
    }

    #[test]
    fn a_line_without_rounds_has_no_steal_time() {
        let json = Figure::counted(7, Duration::from_secs(1)).json(None);
        assert_eq!(json, json!({ "per_s": 7.0, "count": 7 }));
    }
}
