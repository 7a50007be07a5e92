//! Contract suite of the artifacts port.
//!
//! [`all`] runs each test on a new store.

use std::sync::Arc;

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put};
use bytes::Bytes;
use futures_util::future::join_all;

/// Storage of a test. Reopening it gives the same content.
pub trait ArtifactsHome {
    /// Opens the store. Several may be open at the same time.
    fn open(&self) -> Arc<dyn Artifacts>;

    /// Lines of an appended file, as seen by a reader of the closed run.
    fn lines(&self, path: &str) -> Vec<String>;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn ArtifactsHome>) {
    a_file_is_created_once_and_never_changes(&*home()).await;
    results_are_in_the_order_of_the_files(&*home()).await;
    of_many_creators_one_wins(&*home()).await;
    a_missing_file_is_none(&*home()).await;
    paths_are_listed_in_byte_order_page_by_page(&*home()).await;
    paths_that_leave_the_root_are_refused(&*home()).await;
    a_line_is_appended_once(&*home()).await;
    racing_appenders_lose_no_line(&*home()).await;
    lines_without_marker_check_are_repaired(&*home()).await;
    lost_files_are_restored(&*home()).await;
    the_newest_status_is_shown(&*home()).await;
    a_probe_may_write_over_itself(&*home()).await;
    artifacts_survive_a_restart(&*home()).await;
}

/// Puts one file.
pub async fn put(store: &dyn Artifacts, path: &str, text: &str) -> Result<Put, ArtifactsError> {
    store.put_if_absent(vec![File::new(path, text.to_owned())]).await.remove(0)
}

async fn created(store: &dyn Artifacts, path: &str, text: &str) {
    assert_eq!(put(store, path, text).await.expect("the store works"), Put::Created, "{path}");
}

/// Text of a file.
pub async fn text(store: &dyn Artifacts, path: &str) -> Option<String> {
    let bytes = store.get(path).await.expect("the store works")?;
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

async fn list(
    store: &dyn Artifacts,
    prefix: &str,
    after: Option<&str>,
    rows_max: usize,
) -> Vec<String> {
    store.list(prefix, after.map(str::to_owned), rows_max).await.expect("the store works")
}

fn line(name: &str) -> Line {
    let marker = File::new(format!("run/markers/{name}.json"), format!("{{\"id\":\"{name}\"}}\n"));
    Line { text: format!("{{\"line\":\"{name}\"}}").into(), marker }
}

const LOG: &str = "run/events.jsonl";

async fn append(store: &dyn Artifacts, names: &[&str], markers: Markers) -> Vec<Put> {
    let lines = names.iter().map(|name| line(name)).collect();
    let answers = store.append_lines(LOG, lines, markers).await;
    answers.into_iter().map(|answer| answer.expect("the store works")).collect()
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{{\"line\":\"{name}\"}}")).collect()
}

async fn a_file_is_created_once_and_never_changes(home: &dyn ArtifactsHome) {
    let store = home.open();
    created(&*store, "run/receipts/a.json", "first").await;
    let again = put(&*store, "run/receipts/a.json", "second").await.expect("the store works");
    assert_eq!(again, Put::Existed);
    assert_eq!(text(&*store, "run/receipts/a.json").await.as_deref(), Some("first"));
    created(&*store, "run/receipts/empty", "").await;
    assert_eq!(text(&*store, "run/receipts/empty").await.as_deref(), Some(""));
}

async fn results_are_in_the_order_of_the_files(home: &dyn ArtifactsHome) {
    let store = home.open();
    assert!(store.put_if_absent(Vec::new()).await.is_empty());
    created(&*store, "run/3", "there").await;
    let mut files: Vec<File> =
        (0..300).map(|n| File::new(format!("run/{n}"), n.to_string())).collect();
    files.push(File::new("run/7", "a second seven"));
    files.push(File::new("../out", "out"));
    let answers = store.put_if_absent(files).await;
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(Put::Existed) => assert!(n == 3 || n == 300, "{n}"),
            Ok(Put::Created) => assert!(n < 300 && n != 3, "{n}"),
            Err(error) => assert!(n == 301, "{n}: {error}"),
        }
    }
    assert_eq!(text(&*store, "run/7").await.as_deref(), Some("7"), "the first of the batch");
    assert_eq!(text(&*store, "run/299").await.as_deref(), Some("299"));
}

async fn of_many_creators_one_wins(home: &dyn ArtifactsHome) {
    let (one, other) = (home.open(), home.open());
    for round in 0..8 {
        let path = format!("race/{round}");
        let creators = (0..12).map(|creator| {
            let store = if creator % 2 == 0 { &one } else { &other };
            let path = &path;
            async move { (creator, put(&**store, path, &creator.to_string()).await) }
        });
        let answers = join_all(creators).await;
        let winners: Vec<i32> = answers
            .iter()
            .filter(|(_, put)| matches!(put, Ok(Put::Created)))
            .map(|(creator, _)| *creator)
            .collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert_eq!(text(&*one, &path).await, Some(winners[0].to_string()), "the winner's text");
    }
}

async fn a_missing_file_is_none(home: &dyn ArtifactsHome) {
    let store = home.open();
    created(&*store, "run/a", "a").await;
    for path in ["run/b", "other/a", "run/a/below", "run"] {
        assert_eq!(store.get(path).await.expect("not an error"), None, "{path}");
    }
    assert_eq!(list(&*store, "other", None, 10).await, [""; 0]);
}

async fn paths_are_listed_in_byte_order_page_by_page(home: &dyn ArtifactsHome) {
    let store = home.open();
    let mut paths = [
        "run/b/2",
        "run/b/10",
        "run/b/1",
        "run/a",
        "run/b.json",
        "run/b-x/1",
        "run/b0",
        "run/B/1",
        "run2/a",
        "runs/a",
        "run/c/d/e/f",
    ];
    for path in paths {
        created(&*store, path, path).await;
    }
    paths.sort_unstable();
    assert_eq!(list(&*store, "", None, 100).await, paths);
    for prefix in ["run", "run/", "run/b", "run/b/", "run/b/1", "run/c/d", "zzz"] {
        let expected: Vec<&str> =
            paths.iter().copied().filter(|path| path.starts_with(prefix)).collect();
        for rows_max in [1, 2, 3, 100] {
            let mut all: Vec<String> = Vec::new();
            loop {
                let page = list(&*store, prefix, all.last().map(String::as_str), rows_max).await;
                assert!(page.len() <= rows_max);
                if page.is_empty() {
                    break;
                }
                all.extend(page);
            }
            assert_eq!(all, expected, "{prefix:?} by {rows_max}");
        }
    }
    let from_between = list(&*store, "run/", Some("run/b/1zzz"), 100).await;
    assert_eq!(from_between, ["run/b/2", "run/b0", "run/c/d/e/f"], "a path that is not there");
    assert_eq!(list(&*store, "", None, 0).await, [""; 0]);
}

async fn paths_that_leave_the_root_are_refused(home: &dyn ArtifactsHome) {
    let store = home.open();
    for path in
        ["../out", "/out", "run/../../out", "", "run//a", ".hidden", "run/.a", "a\\b", "a\0"]
    {
        let refused = |error: &ArtifactsError| matches!(error, ArtifactsError::InvalidPath { .. });
        assert!(put(&*store, path, "x").await.is_err_and(|error| refused(&error)), "{path:?}");
        assert!(store.get(path).await.is_err_and(|error| refused(&error)), "{path:?}");
        assert!(store.probe(path, Bytes::new()).await.is_err_and(|error| refused(&error)));
        let restored = store.restore(vec![File::new(path, "x")]).await.remove(0);
        assert!(restored.is_err_and(|error| refused(&error)), "{path:?}");
        let appended = store.append_lines(path, vec![line("a")], Markers::Trusted).await.remove(0);
        assert!(appended.is_err_and(|error| refused(&error)), "{path:?}");
        let marker = File::new(path, "x");
        let marked = Line { marker, ..line("a") };
        let appended = store.append_lines(LOG, vec![marked], Markers::Trusted).await.remove(0);
        assert!(appended.is_err_and(|error| refused(&error)), "{path:?}");
    }
    assert!(store.list("../", None, 10).await.is_err());
    assert_eq!(list(&*store, "", None, 10).await, [""; 0], "nothing was written");
}

async fn a_line_is_appended_once(home: &dyn ArtifactsHome) {
    let store = home.open();
    assert_eq!(append(&*store, &["a", "b"], Markers::Trusted).await, [Put::Created; 2]);
    let again = append(&*store, &["b", "c", "c"], Markers::Trusted).await;
    assert_eq!(again, [Put::Existed, Put::Created, Put::Existed]);
    assert_eq!(home.lines(LOG), texts(&["a", "b", "c"]));
    assert_eq!(text(&*store, "run/markers/a.json").await.as_deref(), Some("{\"id\":\"a\"}\n"));
    for bad in ["", "two\nlines"] {
        let bad = Line { text: bad.into(), ..line("bad") };
        let answers = store.append_lines(LOG, vec![bad, line("d")], Markers::Trusted).await;
        assert!(matches!(answers[0], Err(ArtifactsError::InvalidLine { .. })), "{answers:?}");
        assert!(answers[1].is_ok(), "a bad line fails alone");
    }
    assert_eq!(text(&*store, "run/markers/bad.json").await, None);
    assert_eq!(home.lines(LOG), texts(&["a", "b", "c", "d"]));
}

async fn racing_appenders_lose_no_line(home: &dyn ArtifactsHome) {
    let (one, other) = (home.open(), home.open());
    let names: Vec<String> = (0..60).map(|n| format!("n{n:02}")).collect();
    // Two copies of each, from two stores.
    let appenders = names.iter().chain(&names).enumerate().map(|(n, name)| {
        let store = if n % 2 == 0 { &one } else { &other };
        async move { append(&**store, &[name], Markers::Trusted).await[0] }
    });
    let answers = join_all(appenders).await;
    assert_eq!(answers.iter().filter(|put| **put == Put::Created).count(), 60);
    let mut lines = home.lines(LOG);
    lines.sort_unstable();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(lines, texts(&names), "every line once");
}

async fn lines_without_marker_check_are_repaired(home: &dyn ArtifactsHome) {
    let store = home.open();
    append(&*store, &["a", "b"], Markers::Trusted).await;
    // Marker without its line, as after a power cut.
    let lost = line("lost");
    created(&*store, &lost.marker.path, "{\"id\":\"lost\"}\n").await;
    let answers = append(&*store, &["a", "lost", "new"], Markers::Verified).await;
    assert_eq!(answers, [Put::Existed, Put::Created, Put::Created]);
    assert_eq!(home.lines(LOG), texts(&["a", "b", "lost", "new"]));
    let again = append(&*store, &["a", "lost", "new"], Markers::Verified).await;
    assert_eq!(again, [Put::Existed; 3]);
    assert_eq!(append(&*store, &["new"], Markers::Trusted).await, [Put::Existed]);
    assert_eq!(home.lines(LOG), texts(&["a", "b", "lost", "new"]));
}

async fn lost_files_are_restored(home: &dyn ArtifactsHome) {
    let store = home.open();
    created(&*store, "run/cut", "hal").await;
    let files = vec![File::new("run/cut", "half and half"), File::new("run/gone", "here again")];
    for restored in store.restore(files).await {
        restored.expect("the store works");
    }
    assert_eq!(text(&*store, "run/cut").await.as_deref(), Some("half and half"));
    assert_eq!(text(&*store, "run/gone").await.as_deref(), Some("here again"));
    assert_eq!(list(&*store, "run", None, 10).await, ["run/cut", "run/gone"]);
    store.sync().await.expect("the store works");
}

async fn the_newest_status_is_shown(home: &dyn ArtifactsHome) {
    let (one, other) = (home.open(), home.open());
    for (store, status) in [(&one, "OPEN"), (&other, "PLANNED"), (&one, "READY")] {
        let shown = store.show(vec![File::new("run/sr/run_status/1.json", status)]).await;
        shown.into_iter().for_each(|shown| shown.expect("the store works"));
        for reader in [&one, &other] {
            let there = text(&**reader, "run/sr/run_status/1.json").await;
            assert_eq!(there.as_deref(), Some(status), "visible to every reader");
        }
    }
}

async fn a_probe_may_write_over_itself(home: &dyn ArtifactsHome) {
    let store = home.open();
    for text in ["1", "2"] {
        store.probe("run/health/last_probe.json", text.into()).await.expect("the store works");
    }
    assert_eq!(text(&*store, "run/health/last_probe.json").await.as_deref(), Some("2"));
}

async fn artifacts_survive_a_restart(home: &dyn ArtifactsHome) {
    let store = home.open();
    created(&*store, "run/a", "a").await;
    append(&*store, &["a"], Markers::Trusted).await;
    store.sync().await.expect("the store works");
    drop(store);
    let store = home.open();
    assert_eq!(text(&*store, "run/a").await.as_deref(), Some("a"));
    assert_eq!(put(&*store, "run/a", "b").await.expect("the store works"), Put::Existed);
    assert_eq!(append(&*store, &["a", "b"], Markers::Trusted).await, [Put::Existed, Put::Created]);
    assert_eq!(home.lines(LOG), texts(&["a", "b"]));
}
