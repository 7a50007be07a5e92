//! TLS: handshakes, client certificates and errors.

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
use crate::test_server::{TestServer, wait_until};

/// A certificate authority of a test.
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

    /// Returns a certificate and its key for `name`, as PEM.
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

/// Starts a gate with a certificate for `localhost`; with `client_ca` it requires client certificates.
async fn server(signer: &Signer, client_ca: Option<&Signer>, limits: Limits) -> TestServer {
    server_for(signer, client_ca, limits, &[]).await
}

/// Same with principals.
async fn server_for(
    signer: &Signer,
    client_ca: Option<&Signer>,
    limits: Limits,
    principals: &[&str],
) -> TestServer {
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = signer.sign("localhost");
    let files = TlsFiles {
        cert: write(folder.path(), "cert.pem", &cert),
        key: write(folder.path(), "key.pem", &key),
        client_ca: client_ca.map(|ca| write(folder.path(), "ca.pem", &ca.pem())),
    };
    let tls = Tls::load(&files).expect("files that fit");
    TestServer::with_change(limits, principals, |gate| gate.with_tls(tls)).await
}

/// Sends `request` over TLS and returns the response.
async fn request(
    server: &TestServer,
    trusts: &Signer,
    client_cert: Option<(String, String)>,
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
    let config = match client_cert {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![cert], key).expect("a pair")
        }
    };
    let stream = TcpStream::connect(server.address).await?;
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
async fn submissions_work_over_tls() {
    let signer = Signer::new();
    let server = server(&signer, None, Limits::default()).await;
    let response = request(&server, &signer, None, &post("a")).await.expect("a response");
    assert!(response.contains(r#""verdict":"fresh""#), "{response}");
    let response = request(&server, &signer, None, &post("a")).await.expect("a response");
    assert!(response.contains(r#""verdict":"duplicate""#), "{response}");
}

#[tokio::test]
async fn plain_text_on_the_tls_port_gets_an_error_and_is_closed() {
    let signer = Signer::new();
    let server = server(&signer, None, Limits::default()).await;
    let mut client = server.client().await;
    let response = client.request(post(&"x".repeat(200_000))).await;
    assert_eq!((response.status, response.general_code().as_str()), (400, "invalid_request"));
    assert!(response.body.contains("https"), "{response:?}");
    client.closed().await;
    assert_eq!(server.counted("fresh"), 0);
    wait_until(|| server.gate.metrics().tls_handshake_failures.get() == 1).await;
}

#[tokio::test]
async fn an_unfinished_handshake_times_out() {
    let signer = Signer::new();
    let limits = Limits { header_read_ms_max: 50, ..Limits::default() };
    let server = server(&signer, None, limits).await;
    let mut silent = server.client().await;
    let mut half = server.client().await;
    half.send([0x16, 3, 1, 2, 0]).await;
    silent.closed().await;
    wait_until(|| server.gate.metrics().connections_open() == 0).await;
    assert_eq!(server.gate.metrics().tls_handshake_failures.get(), 2);
    let response = request(&server, &signer, None, &get("/livez")).await;
    assert!(response.is_ok(), "others are served: {response:?}");
}

#[tokio::test]
async fn with_a_client_ca_only_its_clients_can_connect() {
    let (signer, clients, unknown_ca) = (Signer::new(), Signer::new(), Signer::new());
    let server = server(&signer, Some(&clients), Limits::default()).await;
    let known = Some(clients.sign("producer"));
    let response = request(&server, &signer, known, &post("a")).await.expect("a response");
    assert!(response.contains(r#""verdict":"fresh""#), "{response}");
    for client_cert in [None, Some(unknown_ca.sign("producer"))] {
        request(&server, &signer, client_cert, &post("b"))
            .await
            .expect_err("no handshake, no response");
    }
    assert_eq!(server.counted("fresh"), 1);
    wait_until(|| server.gate.metrics().tls_handshake_failures.get() == 2).await;
}

#[test]
fn errors_name_invalid_files_without_their_content() {
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
    let server = server_for(&signer, None, limits, &[arena]).await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    // Both are before the end of their handshake, so both are unauthenticated.
    first.send([0x16]).await;
    second.send([0x16]).await;
    wait_until(|| server.gate.metrics().connections_open() == 2).await;
    server.client().await.closed().await;
    assert_eq!(server.gate.metrics().connections_closed_at_once.get(), 1);
    drop(first);
    let event = post_with("content-type: application/json\r\nauthorization: Bearer a-key\r\n", "a");
    wait_until(|| server.gate.metrics().connections_open() == 1).await;
    let response = request(&server, &signer, None, &event).await.expect("a response");
    assert!(response.contains(r#""verdict":"fresh""#), "{response}");
}
