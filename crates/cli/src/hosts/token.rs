//! The token that both sides of a session over TCP know, and the proof that they know it.
//!
//! The proof is an HMAC-SHA256 of the token over the keying material of the TLS session (RFC 5705,
//! RFC 8446 section 7.5). A man in the middle has two TLS sessions with different keying material.
//! A proof that is made for one is wrong for the other, so he cannot pass it on.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ring::hmac::{HMAC_SHA256, Key, sign, verify};
use ring::rand::{SecureRandom, SystemRandom};

/// The environment variable with the token.
pub(crate) const VARIABLE: &str = estafette_measure::hosts::TOKEN_VARIABLE;
/// The minimum length of a token in bytes. Whoever pretends to be a peer gets a proof, with which
/// he can try tokens by himself.
const MIN_LEN: usize = 16;
/// The maximum length of a token in bytes.
const MAX_LEN: usize = 1024;
/// The length of a proof in bytes.
pub(super) const PROOF_LEN: usize = 32;

/// A side of a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum TokenSide {
    Coordinator,
    Peer,
}

impl TokenSide {
    fn label(self) -> &'static [u8] {
        match self {
            TokenSide::Coordinator => b"estafette coordinator",
            TokenSide::Peer => b"estafette peer",
        }
    }
}

/// A token. Its text is not in debug output.
#[derive(Clone)]
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token of the file, or else of the environment. `None` if neither is given.
    ///
    /// # Errors
    /// If the file cannot be read, or the token is too short.
    pub(crate) fn given(file: Option<&Path>) -> Result<Option<Token>> {
        if let Some(path) = file {
            let mut text = String::new();
            let read = File::open(path).and_then(|file| file.take(MAX_LEN as u64 + 2).read_to_string(&mut text));
            read.with_context(|| format!("reading the token from {}", path.display()))?;
            return Token::checked(text.trim(), &format!("of {}", path.display())).map(Some);
        }
        let text = env::var_os(VARIABLE).map(|text| {
            text.into_string().map_err(|_| anyhow!("the token of {VARIABLE} is not UTF-8 text: choose another"))
        });
        text.transpose()?.map(|text| Token::checked(&text, &format!("of {VARIABLE}"))).transpose()
    }

    fn checked(text: &str, whose: &str) -> Result<Token> {
        if !(MIN_LEN..=MAX_LEN).contains(&text.len()) {
            bail!(
                "the token {whose} has {} bytes: use {MIN_LEN} to {MAX_LEN} random ones, such as `openssl rand -hex 16` prints",
                text.len()
            );
        }
        Ok(Token(text.to_owned()))
    }

    /// A random token of 128 bits.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn random() -> Result<Token> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("the system has no random numbers"))?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Its text, to print it for the user.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The proof that a side knows the token. `keying` is the keying material of the TLS session.
    pub(super) fn proof(&self, side: TokenSide, keying: &[u8]) -> [u8; PROOF_LEN] {
        let mut proof = [0; PROOF_LEN];
        proof.copy_from_slice(sign(&self.key(), &message(side, keying)).as_ref());
        proof
    }

    /// Whether this is the proof of that side. Takes the same time for any wrong one.
    pub(super) fn is_proof(&self, proof: &[u8], side: TokenSide, keying: &[u8]) -> bool {
        verify(&self.key(), &message(side, keying), proof).is_ok()
    }

    fn key(&self) -> Key {
        Key::new(HMAC_SHA256, self.0.as_bytes())
    }
}

fn message(side: TokenSide, keying: &[u8]) -> Vec<u8> {
    [side.label(), &[0], keying].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_token_one_side_and_one_session() {
        let [token, other] = [Token::random().unwrap(), Token::random().unwrap()];
        let proof = token.proof(TokenSide::Coordinator, b"keys");
        assert!(token.is_proof(&proof, TokenSide::Coordinator, b"keys"));
        assert!(!other.is_proof(&proof, TokenSide::Coordinator, b"keys"), "another token");
        assert!(!token.is_proof(&proof, TokenSide::Peer, b"keys"), "sent back");
        assert!(!token.is_proof(&proof, TokenSide::Coordinator, b"yeks"), "another session");
        assert!(!token.is_proof(&proof[..31], TokenSide::Coordinator, b"keys"), "cut off");
    }

    #[test]
    fn short_tokens_are_refused_and_never_shown() {
        let error = Token::checked("short", "of here").unwrap_err().to_string();
        assert!(error.contains("16") && error.contains("openssl") && !error.contains("short"), "{error}");
        let token = Token::random().unwrap();
        assert_eq!((token.text().len(), format!("{token:?}")), (32, String::from("Token")));
    }
}
