//! Helpers of several tests, in addition to those of the conformance suite.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "not every test needs everything")]

pub mod memory;
pub mod process;

pub use estafette_net::conformance::{PATIENCE, Seen, Side, connected as connected_with, until};
use estafette_net::{Endpoint, Options};

/// An unused address of this scheme.
pub fn address(scheme: &str, folder: &tempfile::TempDir) -> String {
    match scheme {
        "unix" | "unix+msg" => format!("{scheme}://{}", folder.path().join("socket").display()),
        "inproc" | "inproc+msg" => format!("{scheme}://{}", folder.path().display()),
        _ => format!("{scheme}://127.0.0.1:0"),
    }
}

/// Options for a listener of any scheme, and for a client that trusts it.
pub fn options() -> (Options, Options) {
    #[cfg(feature = "tls")]
    return tls::options();
    #[cfg(not(feature = "tls"))]
    (Options::default(), Options::default())
}

/// Certificates generated for the tests.
#[cfg(feature = "tls")]
pub mod tls {
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, OnceLock};

    use estafette_net::Options;
    use rcgen::{Certificate, CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, RootCertStore, ServerConfig};

    /// A listener with this certificate, and a client that trusts it.
    pub fn with(params: CertificateParams) -> (Options, Options) {
        let (client, server) = client(params);
        (server, Options::default().tls_client(client))
    }

    /// As [`with`], but returns the client's rustls configuration.
    pub fn client(params: CertificateParams) -> (Arc<ClientConfig>, Options) {
        let key = KeyPair::generate().unwrap();
        configs(&params.self_signed(&key).unwrap(), &key)
    }

    /// As [`options`], with a new certificate that is written to `folder` as `certificate.pem`, and
    /// its key as `key.pem`.
    pub fn in_folder(folder: &Path) -> (Options, Options) {
        let key = KeyPair::generate().unwrap();
        let certificate = params().self_signed(&key).unwrap();
        fs::write(folder.join("certificate.pem"), certificate.pem()).unwrap();
        fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        let (client, server) = configs(&certificate, &key);
        (server, Options::default().tls_client(client))
    }

    fn configs(certificate: &Certificate, key: &KeyPair) -> (Arc<ClientConfig>, Options) {
        let certificate = certificate.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(client), Options::default().tls_server(Arc::new(server)))
    }

    pub fn params() -> CertificateParams {
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
    }

    pub fn options() -> (Options, Options) {
        static OPTIONS: OnceLock<(Options, Options)> = OnceLock::new();
        OPTIONS.get_or_init(|| with(params())).clone()
    }
}

/// Connects `client` to a listener of `server`. Returns the accepted end, the connecting end, and
/// the listener.
#[track_caller]
pub fn connected(server: &mut Side, client: &mut Side, address: &str) -> (Endpoint, Endpoint, Endpoint) {
    connected_with(server, client, address, &options())
}
