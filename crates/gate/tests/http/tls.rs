//! The same gate behind TLS: who is let into the handshake, and what the rest is told.

use std::path::Path;
use std::sync::Arc;

use admit_gate::{Limits, Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{get, post, post_with};
use crate::world::{World, until};

/// A certificate authority of this test, and what it has signed.
struct Signer {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Signer {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// A certificate and its key for `name`, as PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        (cert.pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a temporary folder takes files");
    path
}

/// A gate with a certificate for `localhost`; with `client_ca` it wants one of its peers too.
async fn world(signer: &Signer, client_ca: Option<&Signer>, limits: Limits) -> World {
    world_for(signer, client_ca, limits, &[]).await
}

/// The same for principals.
async fn world_for(
    signer: &Signer,
    client_ca: Option<&Signer>,
    limits: Limits,
    principals: &[&str],
) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = signer.sign("localhost");
    let files = TlsFiles {
        cert: write(folder.path(), "cert.pem", &cert),
        key: write(folder.path(), "key.pem", &key),
        client_ca: client_ca.map(|ca| write(folder.path(), "ca.pem", &ca.pem())),
    };
    let tls = Tls::load(&files).expect("files that fit");
    World::with_change(limits, principals, |gate| gate.with_tls(tls)).await
}

/// What the gate answers to `request` over TLS, or why there is no answer.
async fn ask(
    world: &World,
    trusts: &Signer,
    shows: Option<(String, String)>,
    request: &str,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(trusts.pem().as_bytes()).expect("PEM");
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shows {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![cert], key).expect("a pair")
        }
    };
    let stream = TcpStream::connect(world.address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream
        .write_all(request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn behind_tls_the_door_is_the_same() {
    let signer = Signer::new();
    let world = world(&signer, None, Limits::default()).await;
    let answer = ask(&world, &signer, None, &post("a")).await.expect("an answer");
    assert!(answer.contains(r#""verdict":"fresh""#), "{answer}");
    let answer = ask(&world, &signer, None, &post("a")).await.expect("an answer");
    assert!(answer.contains(r#""verdict":"duplicate""#), "{answer}");
}

#[tokio::test]
async fn plain_text_on_the_tls_port_is_told_so_and_closed() {
    let signer = Signer::new();
    let world = world(&signer, None, Limits::default()).await;
    let mut client = world.client().await;
    let answer = client.ask(post(&"x".repeat(200_000))).await;
    assert_eq!((answer.status, answer.general().as_str()), (400, "invalid_request"));
    assert!(answer.body.contains("https"), "{answer:?}");
    client.closed().await;
    assert_eq!(world.counted("fresh"), 0);
    until(|| world.gate.metrics().tls_handshake_failures.get() == 1).await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off() {
    let signer = Signer::new();
    let limits = Limits { header_read_ms_max: 50, ..Limits::default() };
    let world = world(&signer, None, limits).await;
    let mut silent = world.client().await;
    let mut half = world.client().await;
    half.send([0x16, 3, 1, 2, 0]).await;
    silent.closed().await;
    until(|| world.gate.metrics().connections_open() == 0).await;
    assert_eq!(world.gate.metrics().tls_handshake_failures.get(), 2);
    let answer = ask(&world, &signer, None, &get("/livez")).await;
    assert!(answer.is_ok(), "others are served: {answer:?}");
}

#[tokio::test]
async fn with_a_client_ca_only_peers_it_signed_get_in() {
    let (signer, clients, strangers) = (Signer::new(), Signer::new(), Signer::new());
    let world = world(&signer, Some(&clients), Limits::default()).await;
    let known = Some(clients.sign("producer"));
    let answer = ask(&world, &signer, known, &post("a")).await.expect("an answer");
    assert!(answer.contains(r#""verdict":"fresh""#), "{answer}");
    for shows in [None, Some(strangers.sign("producer"))] {
        ask(&world, &signer, shows, &post("b")).await.expect_err("no handshake, no answer");
    }
    assert_eq!(world.counted("fresh"), 1);
    until(|| world.gate.metrics().tls_handshake_failures.get() == 2).await;
}

#[test]
fn files_that_do_not_fit_are_named_without_what_is_in_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let signer = Signer::new();
    let ((cert, key), (_, other_key)) = (signer.sign("localhost"), signer.sign("localhost"));
    let files = |cert: &str, key: &str| TlsFiles {
        cert: write(folder.path(), "cert.pem", cert),
        key: write(folder.path(), "key.pem", key),
        client_ca: None,
    };
    assert!(Tls::load(&files(&cert, &key)).is_ok());
    for (cert, key, named) in [
        ("", key.as_str(), "cert.pem"),
        (&cert, "not a key", "key.pem"),
        (&cert, &other_key, "key.pem"),
        (&key, &key, "cert.pem"),
    ] {
        let error = Tls::load(&files(cert, key)).expect_err("they do not fit").to_string();
        assert!(error.contains(named), "{error}");
        assert!(!error.contains("BEGIN"), "{error}");
    }
    let mut lost = files(&cert, &key);
    lost.client_ca = Some(folder.path().join("lost.pem"));
    let error = Tls::load(&lost).expect_err("there is no such file").to_string();
    assert!(error.contains("lost.pem"), "{error}");
}

#[tokio::test]
async fn too_many_connections_of_an_address_are_closed_before_the_handshake() {
    let signer = Signer::new();
    let limits = Limits {
        unauthenticated_connections_per_address_max: 2,
        header_read_ms_max: 60_000,
        body_read_ms_max: 60_000,
        answer_ms_max: 70_000,
        ..Limits::default()
    };
    let arena = r#"{"name":"arena","keys":["a-key"]}"#;
    let world = world_for(&signer, None, limits, &[arena]).await;
    let (mut first, mut second) = (world.client().await, world.client().await);
    // Neither is past its handshake, so neither can have shown a key.
    first.send([0x16]).await;
    second.send([0x16]).await;
    until(|| world.gate.metrics().connections_open() == 2).await;
    world.client().await.closed().await;
    assert_eq!(world.gate.metrics().connections_closed_at_once.get(), 1);
    drop(first);
    let event = post_with("content-type: application/json\r\nauthorization: Bearer a-key\r\n", "a");
    until(|| world.gate.metrics().connections_open() == 1).await;
    let answer = ask(&world, &signer, None, &event).await.expect("an answer");
    assert!(answer.contains(r#""verdict":"fresh""#), "{answer}");
}
