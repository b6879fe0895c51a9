//! Servers that want certificates and credentials.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa};

use crate::ground::{Ground, numbers};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![certificates_of_the_server_and_of_the_hosts_are_checked, a_credentials_file_is_used];

/// Two hosts, with more settings of the server.
fn from_file(settings: &str) -> String {
    crate::delivery::from_file(", delivery: at-least-once").replace("prefix: t,", &format!("prefix: t, {settings},"))
}

/// Writes a certificate for loopback that an authority has signed, and its key.
fn write_certificate(folder: &Path, name: &str, authority: &CertifiedIssuer<'_, rcgen::KeyPair>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.signed_by(&key, authority).unwrap();
    fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn authority(name: &str) -> CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
}

fn certificates_of_the_server_and_of_the_hosts_are_checked() {
    let files = tempfile::tempdir().unwrap();
    let (authority, other) = (authority("ca"), authority("other"));
    write_certificate(files.path(), "server", &authority);
    write_certificate(files.path(), "host", &authority);
    write_certificate(files.path(), "stranger", &other);
    for (name, authority) in [("ca", &authority), ("other", &other)] {
        fs::write(files.path().join(format!("{name}.pem")), authority.pem()).unwrap();
    }
    let path = |file: &str| files.path().join(file).display().to_string();
    let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let tls = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true }}\n");
    let Some(server) = Server::start(&format!("{JETSTREAM}{tls}")) else { return };
    let ground = |ca: &str, name: &str| {
        let own = format!("certificate: {}, key: {}", path(&format!("{name}.pem")), path(&format!("{name}.key")));
        let ground = Ground::new(&from_file(&format!("tls: {{ ca: {}, {own} }}", path(ca))), &server);
        ground.write("in.txt", numbers(1000));
        ground
    };
    let good = ground("ca.pem", "host");
    good.run("edge").finished();
    let center = good.run("center");
    good.until_all("out.txt", numbers(1000));
    center.end();
    let error = ground("other.pem", "host").run("edge").ended().unwrap_err();
    assert!(error.contains("no TLS with the NATS server") && error.contains("`nats.tls`"), "{error}");
    // The server ends the connection, sooner or later after the handshake.
    let stranger = ground("ca.pem", "stranger");
    let edge = stranger.run("edge");
    let why = edge.ended_or_problem("nats:raw");
    assert!(why.contains("TLS") || why.contains("cannot be reached"), "{why}");
    // It may have ended already.
    edge.remote.end();
    edge.remote.end();
}

/// A signed token as the tool `nsc` makes them.
fn token(issuer: &KeyPair, subject: &KeyPair, name: &str, claims: &str) -> String {
    let text = |json: &str| BASE64_URL_SAFE_NO_PAD.encode(json);
    let (issued, subject) = (issuer.public_key(), subject.public_key());
    let head = text(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let body = text(&format!(
        r#"{{"jti":"{name}","iat":1700000000,"iss":"{issued}","name":"{name}","sub":"{subject}","nats":{{{claims},"version":2}}}}"#
    ));
    let signed = format!("{head}.{body}");
    let signature = BASE64_URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

fn credentials(account: &KeyPair) -> String {
    let user = KeyPair::new_user();
    let claims = r#""pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1,"type":"user""#;
    let (token, seed) = (token(account, &user, "flow", claims), user.seed().unwrap());
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

fn a_credentials_file_is_used() {
    let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    // The system account may not use JetStream.
    let system_claims = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,
        "leaf":-1},"type":"account""#;
    let claims = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,
        "leaf":-1,"mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1},"type":"account""#;
    let configuration = format!(
        "{JETSTREAM}operator: {}\nresolver: MEMORY\nsystem_account: {system}\nresolver_preload: {{ {system}: {}, {}: {} }}\n",
        token(&operator, &operator, "operator", r#""type":"operator""#),
        token(&operator, &system, "SYS", system_claims),
        account.public_key(),
        token(&operator, &account, "account", claims),
        system = system.public_key(),
    );
    let Some(server) = Server::start(&configuration) else { return };
    let ground = |account: &KeyPair| {
        let ground = Ground::new(&from_file("credentials: flow.creds"), &server);
        fs::write(ground.path("flow.creds"), credentials(account)).unwrap();
        ground.write("in.txt", numbers(1000));
        ground
    };
    let good = ground(&account);
    good.run("edge").finished();
    let center = good.run("center");
    good.until_all("out.txt", numbers(1000));
    center.end();
    let error = ground(&KeyPair::new_account()).run("edge").ended().unwrap_err();
    assert!(error.contains("refuses the connection") && error.contains("`nats.credentials`"), "{error}");
}
