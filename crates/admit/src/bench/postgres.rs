//! Baseline on PostgreSQL: one transaction per event, without a gate.
//!
//! `insert` uses our own client, with bodies like those of the other lines; `pgbench` uses PostgreSQL's
//! tool, if it is installed. Both run `INSERT … ON CONFLICT DO NOTHING` over as many connections as the
//! other lines, with `synchronous_commit = on`.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use super::CONNECTIONS;
use super::client::histogram;
use super::report::{Figure, Report};
use super::sample;
use super::workspace::BenchWorkspace;
use crate::output::{self, Failure};

/// Schema of these lines.
fn schema() -> String {
    BenchWorkspace::schema("insert")
}

/// Measures the selected lines.
pub(super) fn measure(
    url: &str,
    dir: &Path,
    seconds: Duration,
    selected: &dyn Fn(&str) -> bool,
    report: &mut Report,
) -> Result<(), Failure> {
    if !selected("insert") && !selected("pgbench") {
        return Ok(());
    }
    let runtime = runtime()?;
    let schema = schema();
    runtime.block_on(async {
        let client = connect(url).await?;
        let script = format!(
            "CREATE SCHEMA {schema};
             CREATE TABLE {schema}.event (key bytea PRIMARY KEY, body bytea NOT NULL);"
        );
        client.batch_execute(&script).await.map_err(failure)
    })?;
    if selected("insert") {
        report.add("insert", runtime.block_on(insert(url, &schema, seconds))?);
    }
    if selected("pgbench") {
        match pgbench(url, &schema, dir, seconds) {
            Ok(figure) => report.add("pgbench", figure),
            Err(reason) => output::print_stderr(&format!("pgbench skipped: {reason}")),
        }
    }
    Ok(())
}

/// Drops the schemas of this run.
pub(super) fn clean_up(url: &str) -> Result<(), Failure> {
    let prefix = BenchWorkspace::schema("");
    runtime()?.block_on(async {
        let client = connect(url).await?;
        let ours = "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname::text, $1)";
        for row in client.query(ours, &[&prefix]).await.map_err(failure)? {
            let drop = format!("DROP SCHEMA {} CASCADE", row.get::<_, String>(0));
            client.batch_execute(&drop).await.map_err(failure)?;
        }
        Ok(())
    })
}

fn runtime() -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().map_err(Failure::runtime)
}

fn failure(error: tokio_postgres::Error) -> Failure {
    output::with_cause(&error)
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(failure)?;
    Handle::current().spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a benchmark connection failed");
        }
    });
    let sync = "SET synchronous_commit = on";
    client.batch_execute(sync).await.map_err(failure)?;
    Ok(client)
}

/// Inserts events with our own client, one at a time on each connection.
async fn insert(url: &str, schema: &str, seconds: Duration) -> Result<Figure, Failure> {
    let statement = format!(
        "INSERT INTO {schema}.event (key, body) VALUES (sha256($1), $2) ON CONFLICT DO NOTHING"
    );
    let mut clients = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let client = connect(url).await?;
        let prepared = client.prepare(&statement).await.map_err(failure)?;
        clients.push((client, prepared));
    }
    let started = Instant::now();
    let mut tasks: JoinSet<Result<Histogram<u64>, tokio_postgres::Error>> = JoinSet::new();
    for (index, (client, prepared)) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut latencies = histogram();
            let mut number = (index as u64) << 40;
            while started.elapsed() < seconds {
                let body = sample::body(number);
                let (key, body) = (number.to_be_bytes(), body.as_bytes());
                let sent_at = Instant::now();
                client.execute(&prepared, &[&key.as_slice(), &body]).await?;
                let micros = u64::try_from(sent_at.elapsed().as_micros()).unwrap_or(u64::MAX);
                // Latencies are capped at one minute.
                latencies.record(micros.clamp(1, 60_000_000)).unwrap_or_default();
                number += 1;
            }
            Ok(latencies)
        });
    }
    let mut all = histogram();
    while let Some(done) = tasks.join_next().await {
        all.add(done.map_err(Failure::runtime)?.map_err(failure)?).map_err(Failure::runtime)?;
    }
    Ok(Figure::timed(started.elapsed(), all))
}

/// Runs `pgbench`; the error is the reason why it could not be run.
fn pgbench(url: &str, schema: &str, dir: &Path, seconds: Duration) -> Result<Figure, String> {
    let bytes = sample::body(0).len();
    let script = dir.join("pgbench.sql");
    let text = format!(
        "\\set n random(1, 9000000000000000000)\n\
         INSERT INTO {schema}.event (key, body) \
         VALUES (sha256(:n::text::bytea), repeat('x', {bytes})::bytea) ON CONFLICT DO NOTHING;\n"
    );
    std::fs::write(&script, text).map_err(|error| error.to_string())?;
    let seconds = seconds.as_secs().max(1);
    let output = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .arg(format!("--client={CONNECTIONS}"))
        .arg(format!("--time={seconds}"))
        .arg("--file")
        .arg(&script)
        .arg(url)
        .output()
        .map_err(|error| {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            if is_missing { "not installed".to_owned() } else { error.to_string() }
        })?;
    let report = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let per_second = report
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    let per_second = per_second.ok_or_else(|| "no `tps` in its output".to_owned())?;
    // pgbench prints a rate only; a long nominal duration keeps its decimals.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate")]
    let count = (per_second * 1_000.0).round() as u64;
    Ok(Figure::counted(count, Duration::from_secs(1_000)))
}
