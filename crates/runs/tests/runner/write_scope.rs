//! Write scope: the runner writes only its own folders and tables.

use std::sync::Arc;

use admit_artifacts::{Artifacts, File, Line, Markers, ScopedArtifacts};
use admit_runs::runner::FOLDERS;

use crate::world::{PLATFORM_RUN, World};

#[tokio::test]
async fn the_runner_can_write_only_its_own_folders() {
    let world = World::new();
    let artifacts: Arc<dyn Artifacts> = world.artifacts.clone();
    let scoped = ScopedArtifacts::new(artifacts, "", FOLDERS);
    let own = File::new(format!("{PLATFORM_RUN}/sr/run_plan/x.json"), "{}");
    assert!(scoped.put_if_absent(vec![own]).await.remove(0).is_ok());
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
        assert!(scoped.put_if_absent(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(scoped.restore(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(scoped.show(vec![file.clone()]).await.remove(0).is_err(), "{path}");
        assert!(scoped.probe(&path, "{}".into()).await.is_err(), "{path}");
        let line = Line { text: "{}".into(), marker: file };
        let own = format!("{PLATFORM_RUN}/sr/run_record/x.jsonl");
        for log in [&path, &own] {
            let lines = vec![line.clone()];
            let appended = scoped.append_lines(log, lines, Markers::Trusted).await;
            assert!(appended.into_iter().all(|put| put.is_err()), "{log} with {path}");
        }
        assert_eq!(world.artifacts.get(&path).await.expect("readable"), None, "{path}");
    }
    let stray = File::new("sr/run_plan/x.json", "{}");
    assert!(scoped.put_if_absent(vec![stray]).await.remove(0).is_err(), "sr is not a run");
}

#[tokio::test]
async fn a_run_writes_only_its_own_tables() {
    let world = World::new();
    // Except `meta`, which every commit writes.
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
    let written = world.artifacts.list("", None, 1_000).await.expect("readable");
    let own = [format!("{PLATFORM_RUN}/sr/"), format!("{PLATFORM_RUN}/obs/governance/")];
    assert!(written.iter().all(|path| own.iter().any(|own| path.starts_with(own))), "{written:?}");
}
