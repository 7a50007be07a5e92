//! S3 artifact store: contract suite, on a real server and on an emulator.
#![cfg(feature = "s3")]

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use admit_artifacts::s3::{Access, Options, S3Artifacts, S3Keys, S3Location};
use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put};
use admit_core::{Clock, Millis};
use admit_testkit::artifacts_suite::{self, ArtifactsHome, put, text};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::{Moto, S3Access, Seaweed};

/// Frozen clock: the order of lines depends on their counter.
struct FrozenClock;

impl Clock for FrozenClock {
    fn now(&self) -> Millis {
        Millis(1_771_524_842_000)
    }
}

fn access(endpoint: &str) -> Access {
    Access {
        endpoint: Some(endpoint.to_owned()),
        path_style: true,
        keys: Some(S3Keys::new(Seaweed::ACCESS_KEY, Seaweed::SECRET_KEY)),
        request_max: Duration::from_secs(20),
        ..Access::default()
    }
}

fn options(endpoint: &str, place: &str) -> Options {
    let place = S3Location::parse(place).expect("a place");
    Options { access: access(endpoint), ..Options::new(place, Arc::new(FrozenClock)) }
}

/// The proxy has its own runtime, which cannot be created inside another.
fn proxy(upstream: SocketAddr, faults: Faults, seed: u64) -> Proxy {
    let made = std::thread::spawn(move || Proxy::to(upstream, faults, seed));
    made.join().expect("it does not panic").expect("a proxy")
}

struct Bucket {
    endpoint: String,
    place: String,
}

impl ArtifactsHome for Bucket {
    fn open(&self) -> Arc<dyn Artifacts> {
        Arc::new(S3Artifacts::open(options(&self.endpoint, &self.place)).expect("it opens"))
    }

    fn lines(&self, path: &str) -> Vec<String> {
        let store = self.open();
        let read = async {
            let seen = text(&*store, path).await.expect("a reader of the port sees the lines");
            store.compose(path).await.expect("composed");
            // Readers that bypass the port see the lines after compose.
            let place = S3Location::parse(&self.place).expect("a place");
            let objects = admit_artifacts::s3::connect(&place, &access(&self.endpoint));
            let key = object_store::path::Path::parse(place.key(path)).expect("a key");
            let read = object_store::ObjectStoreExt::get(&*objects.expect("connects"), &key).await;
            let bytes = read.expect("it is there").bytes().await.expect("readable");
            assert_eq!(bytes, seen.as_bytes());
            seen
        };
        let text = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(read));
        assert!(text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }
}

/// One prefix per home, so that all share one bucket.
fn homes(endpoint: String, bucket: &'static str) -> impl Fn() -> Box<dyn ArtifactsHome> {
    let next = AtomicU32::new(0);
    move || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let place = format!("s3://{bucket}/homes/{n}");
        Box::new(Bucket { endpoint: endpoint.clone(), place })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_s3_store_passes_the_contract_suite_on_seaweedfs() {
    let Some(server) = Seaweed::start(S3Access::KeyHolders) else { return };
    server.bucket("receipts");
    artifacts_suite::all(homes(server.endpoint(), "receipts")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_s3_store_passes_the_contract_suite_on_moto() {
    let Some(server) = Moto::start() else { return };
    server.bucket("receipts");
    artifacts_suite::all(homes(server.endpoint(), "receipts")).await;
}

#[tokio::test]
async fn an_outage_is_reported_and_the_store_recovers() {
    let Some(server) = Moto::start() else { return };
    server.bucket("receipts");
    let proxy = proxy(server.address(), Faults::default(), 1);
    let mut options = options(&format!("http://{}", proxy.address()), "s3://receipts");
    options.access.tries_max = NonZeroU32::MIN;
    let store = S3Artifacts::open(options).expect("it opens");
    assert_eq!(put(&store, "run/a", "a").await.expect("put"), Put::Created);
    proxy.set_faults(Faults { cut_one_in: 1, ..Faults::default() });
    let down = put(&store, "run/b", "b").await;
    assert!(matches!(down, Err(ArtifactsError::Store { .. })), "{down:?}");
    assert!(store.get("run/a").await.is_err(), "an outage is not a missing file");
    assert!(store.list("run", None, 10).await.is_err());
    assert!(store.probe("run/p", "p".into()).await.is_err());
    proxy.set_faults(Faults::default());
    put(&store, "run/b", "b").await.expect("it is back");
    assert_eq!(text(&store, "run/b").await.as_deref(), Some("b"));
    store.probe("run/p", "p".into()).await.expect("it is back");
}

#[tokio::test]
async fn intermittent_failures_are_retried_and_files_written_once() {
    let Some(server) = Moto::start() else { return };
    server.bucket("receipts");
    let faults = Faults { cut_one_in: 6, ..Faults::default() };
    let proxy = proxy(server.address(), faults, 7);
    let mut options = options(&format!("http://{}", proxy.address()), "s3://receipts");
    options.access.tries_max = NonZeroU32::new(30).expect("not 0");
    let store = S3Artifacts::open(options).expect("it opens");
    let files = (0..60).map(|n| File::new(format!("run/{n:02}"), n.to_string())).collect();
    for put in store.put_if_absent(files).await {
        put.expect("retried until written");
    }
    proxy.set_faults(Faults::default());
    assert_eq!(store.list("run/", None, 100).await.expect("listed").len(), 60);
    for n in 0..60 {
        let there = text(&store, &format!("run/{n:02}")).await;
        assert_eq!(there, Some(n.to_string()));
    }
}

#[tokio::test]
async fn a_read_only_store_writes_nothing() {
    let Some(server) = Moto::start() else { return };
    server.bucket("receipts");
    let reader =
        S3Artifacts::open_read_only(options(&server.endpoint(), "s3://receipts")).expect("opens");
    let refused = |answer| matches!(answer, Err(ArtifactsError::ReadOnly));
    assert!(refused(put(&reader, "run/a", "a").await.map(drop)));
    assert!(refused(reader.probe("run/a", "a".into()).await));
    assert!(refused(reader.restore(vec![File::new("run/a", "a")]).await.remove(0)));
    assert!(refused(reader.compose("run/a.jsonl").await));
    assert!(refused(reader.sync().await));
    let marker = File::new("run/m", "m");
    let line = Line { text: "l".into(), marker };
    let appended = reader.append_lines("run/a.jsonl", vec![line], Markers::Trusted).await;
    assert!(appended.into_iter().all(|one| refused(one.map(drop))));
    assert_eq!(reader.list("", None, 10).await.expect("listed"), [""; 0]);
    assert_eq!(text(&reader, "run/a").await, None);
}

#[tokio::test]
async fn a_file_that_is_too_large_is_neither_put_nor_read() {
    let Some(server) = Moto::start() else { return };
    server.bucket("receipts");
    let large = S3Artifacts::open(options(&server.endpoint(), "s3://receipts")).expect("opens");
    let small = Options { file_bytes_max: 10, ..options(&server.endpoint(), "s3://receipts") };
    let store = S3Artifacts::open(small).expect("opens");
    let put_it = put(&store, "run/a", "more than ten bytes").await;
    assert!(matches!(put_it, Err(ArtifactsError::TooLarge { bytes: 19, .. })), "{put_it:?}");
    put(&store, "run/b", "ten bytes.").await.expect("put");
    put(&large, "run/a", "more than ten bytes").await.expect("put");
    assert!(matches!(store.get("run/a").await, Err(ArtifactsError::TooLarge { .. })));
}

#[tokio::test]
async fn every_request_fails_without_the_bucket() {
    let Some(server) = Moto::start() else { return };
    let store = S3Artifacts::open(options(&server.endpoint(), "s3://nowhere")).expect("opens");
    assert!(put(&store, "run/a", "a").await.is_err());
    assert!(store.probe("run/p", "p".into()).await.is_err());
    assert!(store.list("", None, 10).await.is_err());
    let read = store.get("run/a").await;
    let Err(error) = read else { panic!("{read:?} for a file in a missing bucket") };
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}
