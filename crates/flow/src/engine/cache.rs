//! Compiled code, kept between runs.
//!
//! Compiled code is trusted: loading code that somebody else wrote would run it outside of the sandbox. So the cache is a
//! folder that only its owner can write, and code is loaded from a file that was opened here.

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

/// Where compiled code is kept.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// None keeps nothing: the code is compiled at each start.
    folder: Option<PathBuf>,
}

impl Cache {
    /// The user's cache folder: `$XDG_CACHE_HOME/estafette/functions`, else under `~/.cache`. Without a home, or where
    /// that folder cannot be made or others can write it, nothing is kept.
    pub(crate) fn of_user() -> Cache {
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|value| Path::new(value).is_absolute())
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        let folder = base.map(|base| base.join("estafette").join("functions"));
        match folder.map(|folder| Cache::at(&folder)) {
            Some(Ok(cache)) => cache,
            Some(Err(error)) => {
                tracing::warn!("compiled functions are not kept: {error:#}");
                Cache { folder: None }
            }
            None => Cache { folder: None },
        }
    }

    /// A folder of one's own choice.
    ///
    /// # Errors
    ///
    /// If it cannot be made, or others than its owner can write it.
    pub(crate) fn at(folder: &Path) -> Result<Cache> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let about = fs::metadata(folder)?;
        ensure!(
            about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0,
            "others can write the folder {}; make it yours with `chmod 700`",
            folder.display()
        );
        Ok(Cache { folder: Some(folder.to_owned()) })
    }

    /// The compiled code of a WASM binary, as a file to load it from. Compiles it unless it is kept here, and logs that it
    /// does so under the name `what`, since that may take a while.
    ///
    /// # Errors
    ///
    /// If the WASM is not valid, or there is neither disk nor memory for the code.
    pub(crate) fn compiled(&self, engine: &Engine, abi: Abi, wasm: &[u8], what: &str) -> Result<File> {
        let compile = || compile(engine, abi, wasm);
        let Some(folder) = &self.folder else { return in_memory(&compile()?) };
        let path = folder.join(format!("{}.cwasm", key(engine, abi, wasm)));
        match open_own(&path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("cannot read {}: {error}", path.display()),
        }
        tracing::info!("compiling {what}, whose code is not kept yet");
        let code = compile()?;
        match keep(folder, &path, &code) {
            Ok(file) => Ok(file),
            Err(error) => {
                tracing::warn!("compiled code is not kept in {}: {error}", folder.display());
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

/// What the code depends on: the WASM, the compiler, its settings and the processor's features.
fn key(engine: &Engine, abi: Abi, wasm: &[u8]) -> String {
    /// Hashes with SHA-256 what knows only how to be hashed by a `Hasher`.
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

/// Writes the code beside its place and moves it there, so that nobody ever loads half of it.
fn keep(folder: &Path, path: &Path, code: &[u8]) -> io::Result<File> {
    /// Two functions may have the same module, and be compiled at the same time.
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

/// Opens a file that nobody but this user can have written.
fn open_own(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0;
    match is_own && about.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("others can write it")),
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
        assert_eq!(files, 2, "nothing is left beside them");
    }

    #[test]
    fn a_folder_that_others_write_is_refused() {
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
