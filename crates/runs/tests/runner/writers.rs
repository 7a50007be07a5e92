//! The writer map: the runner can write its own and nothing else.

use std::sync::Arc;

use admit_artifacts::{Artifacts, File, ScopedArtifacts, Line, Markers};
use admit_runs::runner::FOLDERS;

use crate::world::{PLATFORM_RUN, World};

#[tokio::test]
async fn the_runners_handle_writes_its_own_folders_and_no_others() {
    let world = World::new();
    let artifacts: Arc<dyn Artifacts> = world.artifacts.clone();
    let limited = ScopedArtifacts::new(artifacts, "", FOLDERS);
    let own = File::new(format!("{PLATFORM_RUN}/sr/run_plan/x.json"), "{}");
    assert!(limited.put_if_absent(vec![own]).await.remove(0).is_ok());
    for path in [
        "ig/receipts/84201e31c95d5984ab11eb2c7bc20280.json",
        "ig/quarantine/x.json",
        "wsp/ready_runs/x.jsonl",
        "obs/platform_run_report.json",
        "srx/run_plan/x.json",
        "sr",
    ] {
        let path = format!("{PLATFORM_RUN}/{path}");
        let file = File::new(&*path, "{}");
        assert!(limited.put_if_absent(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(limited.restore(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(limited.show(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(limited.probe(&path, "{}".into()).await.is_err(), "{path}");
        let line = Line { text: "{}".into(), marker: file };
        let own = format!("{PLATFORM_RUN}/sr/run_record/x.jsonl");
        for log in [&path, &own] {
            let lines = vec![line.clone()];
            let appended = limited.append_lines(log, lines, Markers::Trusted).await;
            assert!(appended.into_iter().all(|put| put.is_err()), "{log} with {path}");
        }
        assert_eq!(world.artifacts.get(&path).await.expect("it answers"), None, "{path}");
    }
    let stray = File::new("sr/run_plan/x.json", "{}");
    assert!(limited.put_if_absent(vec![stray]).await.remove(0).is_err(), "sr is no run");
}

#[tokio::test]
async fn a_run_leaves_no_trace_in_the_tables_of_others() {
    let world = World::new();
    // But for the place every commit writes down.
    let count = || {
        let db = rusqlite::Connection::open(world.folder.path().join("data/ledger.db")).unwrap();
        let mut names = db
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sr!_%' \
                 ESCAPE '!' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name <> 'meta' \
                 ORDER BY name",
            )
            .unwrap();
        let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().flatten().collect();
        let rows = |name: &String| {
            db.query_row(&format!("SELECT count(*) FROM \"{name}\""), [], |row| {
                row.get::<_, i64>(0)
            })
            .unwrap()
        };
        names.iter().map(|name| (name.clone(), rows(name))).collect::<Vec<_>>()
    };
    let before = count();
    assert!(before.len() > 5);
    world.submit().await;
    assert_eq!(count(), before);
    let written = world.artifacts.list("", None, 1_000).await.expect("it answers");
    let own = [format!("{PLATFORM_RUN}/sr/"), format!("{PLATFORM_RUN}/obs/governance/")];
    assert!(written.iter().all(|path| own.iter().any(|own| path.starts_with(own))), "{written:?}");
}
