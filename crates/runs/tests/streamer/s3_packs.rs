//! Packs in an S3 bucket are read like packs on a disk.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admit_artifacts::s3::{Access, Options, S3Artifacts, S3Keys, S3Location};
use admit_artifacts::{Artifacts as _, File};
use admit_core::{Clock, Millis};
use admit_runs::streamer::RunFailure;
use admit_runs::streamer::pack::rows::PartReader;
use admit_runs::streamer::pack::s3::Bucket;
use admit_runs::streamer::pack::store::{Disk, PackStore};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::Moto;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Millis {
        Millis(0)
    }
}

fn access(address: SocketAddr) -> Access {
    Access {
        endpoint: Some(format!("http://{address}")),
        path_style: true,
        keys: Some(S3Keys::new("suite-access-key", "suite-secret-key")),
        ..Access::default()
    }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engine_run")
}

fn files(folder: &Path, name: &str) -> Vec<File> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path(), &name)),
            false => found.push(File::new(name, fs::read(entry.path()).unwrap())),
        }
    }
    found
}

async fn upload(address: SocketAddr, files: Vec<File>) {
    let location = S3Location::parse("s3://packs").unwrap();
    let options =
        Options { access: access(address), ..Options::new(location, Arc::new(FixedClock)) };
    for put in S3Artifacts::open(options).unwrap().put_if_absent(files).await {
        put.unwrap();
    }
}

/// All rows of a part, with number and first cell.
fn rows(store: &dyn PackStore, path: &str) -> Vec<String> {
    let part = PartReader::open(store.open(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    let mut each = |number: u64, row: &admit_runs::streamer::pack::rows::PackRow<'_>| {
        rows.push(format!("{number} {:?}", row.value(0, number)?));
        Ok::<bool, RunFailure>(true)
    };
    part.rows(0, &mut each).unwrap();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_in_a_bucket_equals_the_pack_on_disk() {
    let Some(server) = Moto::start() else { return };
    server.bucket("packs");
    upload(server.address(), files(&golden(), "golden")).await;
    let (disk, address) = (Disk::new(golden()), server.address());
    let compared = tokio::task::spawn_blocking(move || {
        let location = S3Location::parse("s3://packs/golden").unwrap();
        let bucket = Bucket::open(location, &access(address)).unwrap();
        for path in ["run_receipt.json", "_oracle_pack_manifest.json", "nothing.json", "data"] {
            let expected = disk.read(path).unwrap_or_default();
            assert_eq!(bucket.read(path).unwrap(), expected, "{path}");
        }
        assert_eq!(bucket.names("nothing").unwrap(), None);
        let views = disk.names("stream_view/ts_utc").unwrap();
        assert_eq!(bucket.names("stream_view/ts_utc").unwrap(), views);
        for view in views.unwrap() {
            let folder = format!("stream_view/ts_utc/{view}");
            assert_eq!(bucket.names(&folder).unwrap(), disk.names(&folder).unwrap());
            let part = format!("{folder}/part-000000.parquet");
            assert_eq!(rows(&bucket, &part), rows(&disk, &part));
        }
        assert!(
            bucket
                .open("stream_view/none.parquet")
                .is_err_and(|error| { error.kind() == std::io::ErrorKind::NotFound })
        );
    });
    compared.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreliable_bucket_is_read_with_retries() {
    let Some(server) = Moto::start() else { return };
    server.bucket("packs");
    upload(server.address(), files(&golden(), "golden")).await;
    let address = server.address();
    let compared = tokio::task::spawn_blocking(move || {
        let faults = Faults { cut_one_in: 8, ..Faults::default() };
        let proxy = std::thread::spawn(move || Proxy::to(address, faults, 11)).join().unwrap();
        let proxy = proxy.unwrap();
        let mut access = access(proxy.address());
        access.tries_max = std::num::NonZeroU32::new(20).unwrap();
        let bucket =
            Bucket::open(S3Location::parse("s3://packs/golden").unwrap(), &access).unwrap();
        let disk = Disk::new(golden());
        for view in disk.names("stream_view/ts_utc").unwrap().unwrap() {
            let part = format!("stream_view/ts_utc/{view}/part-000000.parquet");
            assert_eq!(rows(&bucket, &part), rows(&disk, &part));
        }
    });
    compared.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_replaced_while_it_is_read_fails() {
    let Some(server) = Moto::start() else { return };
    server.bucket("packs");
    let bytes = vec![1; 3 << 20];
    upload(server.address(), vec![File::new("p/part", bytes)]).await;
    let address = server.address();
    let location = S3Location::parse("s3://packs").unwrap();
    let options =
        Options { access: access(address), ..Options::new(location, Arc::new(FixedClock)) };
    let store = S3Artifacts::open(options).unwrap();
    let opened = tokio::task::spawn_blocking(move || {
        Bucket::open(S3Location::parse("s3://packs/p").unwrap(), &access(address))
            .unwrap()
            .open("part")
    });
    let source = opened.await.unwrap().unwrap();
    store.restore(vec![File::new("p/part", vec![2; 3 << 20])]).await.remove(0).unwrap();
    let read = tokio::task::spawn_blocking(move || {
        std::io::read_to_string(source.beginning().unwrap()).map(|text| text.len())
    });
    assert!(read.await.unwrap().is_err(), "a mix of both versions must not be returned");
}
