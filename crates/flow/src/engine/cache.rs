//! The cache of compiled code, kept between runs.
//!
//! Compiled code is trusted: code from an attacker would run outside of the sandbox. The cache is
//! therefore a folder that only its owner can write. Code is loaded from a file that was opened and
//! checked here.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use super::inspect::Abi;

/// A cache of compiled code.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// None disables the cache: the code is compiled at each start.
    folder: Option<PathBuf>,
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/estafette/functions`, or a folder under `~/.cache`. The
    /// cache is disabled if there is no home folder, or if the folder cannot be created or other
    /// users can write to it.
    pub(crate) fn of_user() -> Cache {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|value| Path::new(value).is_absolute())
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        let folder = base.map(|base| base.join("estafette").join("functions"));
        match folder.map(|folder| Cache::at(&folder)) {
            Some(Ok(cache)) => cache,
            Some(Err(error)) => {
                tracing::warn!("compiled functions are not cached: {error:#}");
                Cache { folder: None }
            }
            None => Cache { folder: None },
        }
    }

    /// A cache in a given folder.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created, or other users can write to it.
    pub(crate) fn at(folder: &Path) -> Result<Cache> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let about = fs::metadata(folder)?;
        ensure!(
            about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0,
            "other users can write to the folder {}; use `chmod 700` to prevent it",
            folder.display()
        );
        Ok(Cache { folder: Some(folder.to_owned()) })
    }

    /// Returns the compiled code of a WASM binary as a file. If the code is not in the cache,
    /// compiles it, and logs that under the name `what`, since it may take a while.
    ///
    /// # Errors
    ///
    /// If the WASM is invalid, or neither disk nor memory has space for the code.
    pub(crate) fn compiled(&self, engine: &Engine, abi: Abi, wasm: &[u8], what: &str) -> Result<File> {
        let compile = || compile(engine, abi, wasm);
        let Some(folder) = &self.folder else { return in_memory(&compile()?) };
        let path = folder.join(format!("{}.cwasm", key(engine, abi, wasm)));
        match open_own(&path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("cannot read {}: {error}", path.display()),
        }
        tracing::info!("compiling {what}, which is not in the cache yet");
        let code = compile()?;
        match keep(folder, &path, &code) {
            Ok(file) => Ok(file),
            Err(error) => {
                tracing::warn!("cannot cache compiled code in {}: {error}", folder.display());
                in_memory(&code)
            }
        }
    }
}

fn compile(engine: &Engine, abi: Abi, wasm: &[u8]) -> Result<Vec<u8>> {
    let compiled = match abi {
        Abi::Component => engine.precompile_component(wasm),
        Abi::Reference | Abi::Batched => engine.precompile_module(wasm),
    };
    compiled.map_err(|error| anyhow::anyhow!("cannot compile the module: {error:?}"))
}

/// The cache key: a hash of everything that the code depends on, which is the WASM, the compiler,
/// its settings and the CPU's features.
fn key(engine: &Engine, abi: Abi, wasm: &[u8]) -> String {
    /// Hashes a value that only supports `Hasher` with SHA-256.
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    sha.write(abi.name().as_bytes());
    sha.write(wasm);
    sha.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the code to a temporary file and renames it, so that no process loads incomplete code.
fn keep(folder: &Path, path: &Path, code: &[u8]) -> io::Result<File> {
    /// Makes temporary names unique: two functions may have the same module and be compiled at the
    /// same time.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let beside = folder.join(format!(".{process}.{count}.{}", path.file_name().unwrap_or_default().display()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(code)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    let result = write();
    if result.is_err() {
        let _ = fs::remove_file(&beside);
    }
    result.and_then(|()| open_own(path))
}

/// Opens a file, and checks that only this user can write it.
fn open_own(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0;
    match is_own && about.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("other users can write it")),
    }
}

fn in_memory(code: &[u8]) -> Result<File> {
    let memory = memfd_create("estafette-function", MemfdFlags::CLOEXEC).context("cannot make a memfd")?;
    let mut file = File::from(memory);
    file.write_all(code).context("no memory for a function's code")?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const EMPTY: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn code_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("a/b")).unwrap();
        let engine = crate::engine::engine(1).unwrap();
        let first = cache.compiled(&engine, Abi::Batched, EMPTY, "a").unwrap();
        let again = cache.compiled(&engine, Abi::Batched, EMPTY, "a").unwrap();
        assert_eq!(first.metadata().unwrap().ino(), again.metadata().unwrap().ino());
        let other = cache.compiled(&engine, Abi::Batched, b"\0asm\x01\0\0\0\0\x02\x01a", "b").unwrap();
        assert_ne!(first.metadata().unwrap().ino(), other.metadata().unwrap().ino());
        let files = fs::read_dir(folder.path().join("a/b")).unwrap().count();
        assert_eq!(files, 2, "no temporary file is left");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cache::at(folder.path()).unwrap_err().to_string().contains("chmod 700"));
    }

    #[test]
    fn invalid_wasm_is_an_error() {
        let engine = crate::engine::engine(1).unwrap();
        assert!(Cache { folder: None }.compiled(&engine, Abi::Batched, b"\0asm\x01\0\0\0\xff", "c").is_err());
    }
}
