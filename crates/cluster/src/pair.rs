//! The files of a member's certificate and key, which are replaced together.
//!
//! The rename of the certificate decides: the new key is written to a file of its own before, and renamed
//! after. If this is interrupted between the two renames, the new key is still in its own file; readers find
//! it there, and [`finish`](Pair::finish) completes the replacement.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::IdentityError;
use crate::durable::{self, FileError, PRIVATE, PUBLIC, cannot};
use crate::identity::{certificates_in, damaged, read};

/// The paths of a member's certificate and key, which are in one folder.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
}

impl Pair<'_> {
    /// Replaces both files, or neither.
    pub(crate) fn replace(self, certificate_pem: &str, key_pem: &str) -> Result<(), FileError> {
        let _lock = self.lock()?;
        let new_key = self.new_key();
        durable::replace(&new_key, key_pem.as_bytes(), PRIVATE)?;
        durable::replace(self.certificate, certificate_pem.as_bytes(), PUBLIC)?;
        durable::rename(&new_key, self.key)
    }

    /// Completes a replacement that was interrupted after its decision, or removes the key of one that was
    /// interrupted before. Returns whether the key has changed.
    pub(crate) fn finish(self) -> Result<bool, FileError> {
        let new_key = self.new_key();
        if !new_key.exists() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        match self.matches(self.key) || !self.matches(&new_key) {
            true => {
                // Nothing uses this key. If it cannot be removed now, the next replacement overwrites it.
                let _ = fs::remove_file(&new_key);
                Ok(false)
            }
            false => durable::rename(&new_key, self.key).map(|()| true),
        }
    }

    /// Loads the key that belongs to the certificate with this chain, wherever an interrupted replacement
    /// left it.
    pub(crate) fn load(
        self,
        chain: &[CertificateDer<'static>],
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, IdentityError> {
        let error = match self.load_from(self.key, chain, provider) {
            Ok(loaded) => return Ok(loaded),
            Err(error) => error,
        };
        self.load_from(&self.new_key(), chain, provider).map_err(|_| error)
    }

    fn load_from(
        self,
        key: &Path,
        chain: &[CertificateDer<'static>],
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, IdentityError> {
        let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| damaged(key, error))?;
        CertifiedKey::from_der(chain.to_vec(), private, provider).map_err(|source| {
            IdentityError::KeyMismatch {
                key: key.to_owned(),
                certificate: self.certificate.to_owned(),
                source,
            }
        })
    }

    /// Whether the certificate belongs to this key.
    fn matches(self, key: &Path) -> bool {
        let provider = rustls::crypto::ring::default_provider();
        let chain = read(self.certificate).and_then(|pem| certificates_in(self.certificate, &pem));
        chain.is_ok_and(|chain| self.load_from(key, &chain, &provider).is_ok())
    }

    fn new_key(self) -> PathBuf {
        self.key.with_extension("new.pem")
    }

    /// Locks the folder of the files against other replacements, until the result is dropped.
    fn lock(self) -> Result<File, FileError> {
        let folder = self.key.parent().expect("a key is in its member's folder");
        let lock = File::open(folder).map_err(cannot("open", folder))?;
        lock.lock().map_err(cannot("lock", folder))?;
        Ok(lock)
    }
}
