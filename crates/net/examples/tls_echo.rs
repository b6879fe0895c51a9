//! An echo server over TLS, with a test certificate that it generates.
//!
//!     cargo run -p estafette-net --features tls --example tls_echo
//!     cargo run -p estafette-net --features tls --example tls_echo -- serve tls+msg://127.0.0.1:4433 test.pem
//!     cargo run -p estafette-net --features tls --example tls_echo -- ask tls+msg://localhost:4433 test.pem hello
//!
//! Without arguments, both ends are in this program. `serve` writes its certificate to the file,
//! and `ask` trusts the certificate in that file. The URL may also be one of `wss://`. Any TLS
//! client that trusts the file can connect:
//! `openssl s_client -connect 127.0.0.1:4433 -CAfile test.pem`.
//!
//! The private key stays in memory. For a server with a certificate of its own, read both from
//! files: `CertificateDer::pem_file_iter` and `PrivateKeyDer::from_pem_file` of
//! `rustls::pki_types`.

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use estafette_net::rustls::crypto::ring::default_provider;
use estafette_net::rustls::pki_types::pem::PemObject;
use estafette_net::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use estafette_net::rustls::{ClientConfig, RootCertStore, ServerConfig};
use estafette_net::{Address, Endpoint, Event, Handle, Node, Options};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The names that the test certificate is valid for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// How long the client waits for the reply.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => demonstrate(),
        ["serve", url, certificate] => {
            serve(url, certificate, |at| println!("listening at {at}; clients that trust {certificate} can connect"))
        }
        ["ask", url, certificate, text] => ask(url, certificate, text),
        _ => Err("usage: tls_echo [serve URL CERTIFICATE.pem | ask URL CERTIFICATE.pem TEXT]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Generates a test certificate. Returns it as PEM, and the options of a listener that uses it.
fn test_certificate() -> Result<(String, Options)> {
    let names: Vec<_> = NAMES.map(str::to_owned).into();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    Ok((cert.pem(), Options::default().tls_server(Arc::new(config))))
}

/// The options of a client that trusts the certificates in a PEM file.
fn trusting(pem: &[u8]) -> Result<Options> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err("the file contains no certificate".into());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Options::default().tls_client(Arc::new(config)))
}

/// Both ends in one node: the client says hello, and the server echoes.
fn demonstrate() -> Result<()> {
    let (pem, options) = test_certificate()?;
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let listener = handle.listen_with("tls+msg://127.0.0.1:0", &options)?;
    let at = handle.local_address(listener).ok_or("the listener has no address")?;
    println!("listening at {at}");
    let client = handle.connect_with(&at, &trusting(pem.as_bytes())?.host("localhost"))?;
    converse(&mut node, client, "hello over TLS")
}

fn serve(url: &str, certificate: &str, listens: impl FnOnce(&Address)) -> Result<()> {
    let (pem, options) = test_certificate()?;
    let mut node = Node::<()>::new()?;
    let handle = node.handle();
    let listener = handle.listen_with(url, &options)?;
    fs::write(certificate, pem).map_err(|error| format!("{certificate}: {error}"))?;
    listens(&handle.local_address(listener).ok_or("the listener has no address")?);
    node.run(|event| match event {
        Event::Accepted { endpoint, .. } => describe(&handle, "accepted", endpoint),
        Event::Message(from, message) if !handle.send(from, &message).is_accepted() => handle.close(from),
        Event::Closed { reason, .. } => println!("{reason}"),
        _ => {}
    })?;
    Ok(())
}

fn ask(url: &str, certificate: &str, text: &str) -> Result<()> {
    let pem = fs::read(certificate).map_err(|error| format!("{certificate}: {error}"))?;
    let options = trusting(&pem).map_err(|error| format!("{certificate}: {error}"))?;
    let mut node = Node::<()>::new()?;
    let client = node.handle().connect_with(url, &options)?;
    converse(&mut node, client, text)
}

/// Sends a text and prints the reply. A listener of the same node echoes.
fn converse(node: &mut Node<()>, client: Endpoint, text: &str) -> Result<()> {
    let handle = node.handle();
    // It is sent once the connection is open.
    let sent = handle.send(client, text.as_bytes());
    if !sent.is_accepted() {
        return Err(format!("the message was not accepted: {sent:?}").into());
    }
    handle.signal_after(PATIENCE, ());
    let mut result = Err(format!("no reply within {} seconds", PATIENCE.as_secs()));
    node.run(|event| match event {
        Event::Connected(endpoint) => describe(&handle, "connected", endpoint),
        Event::Accepted { endpoint, .. } => describe(&handle, "accepted", endpoint),
        Event::Message(from, message) if from == client => {
            println!("reply: {}", String::from_utf8_lossy(&message));
            result = Ok(());
            handle.stop();
        }
        Event::Message(from, message) => drop(handle.send(from, &message)),
        Event::Closed { endpoint, reason } if endpoint == client => {
            result = Err(reason.to_string());
            handle.stop();
        }
        Event::Signal(()) => handle.stop(),
        _ => {}
    })?;
    Ok(result?)
}

/// Prints what the handshake of a connection agreed upon.
fn describe(handle: &Handle<()>, what: &str, endpoint: Endpoint) {
    let Some(info) = handle.tls(endpoint) else { return };
    println!(
        "{what}: {:?}, {:?} handshake, name {}, {} certificate(s) of the peer",
        info.version,
        info.handshake,
        info.server_name.as_deref().unwrap_or("not given"),
        info.peer_certificates.len(),
    );
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn both_ends_talk() {
        demonstrate().unwrap();
    }

    #[test]
    fn a_client_trusts_the_file_that_the_server_writes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.pem").display().to_string();
        let (listens, listening) = mpsc::channel();
        let written = file.clone();
        thread::spawn(move || serve("wss://127.0.0.1:0", &written, |at| listens.send(at.clone()).unwrap()).unwrap());
        let url = format!("wss://localhost:{}", listening.recv().unwrap().port().unwrap());
        ask(&url, &file, "hello").unwrap();
        fs::write(&file, "nothing").unwrap();
        assert!(ask(&url, &file, "hello").unwrap_err().to_string().ends_with("the file contains no certificate"));
    }
}
