//! The native part of the Python package `mend`: [`client::blocking`] as Python objects.
//!
//! This crate converts arguments, buffers and errors, and has no other logic. Calls that wait for the network
//! release the GIL. They check for signals ten times a second, so Ctrl-C interrupts them.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client::blocking::{self, ErrorKind, KeepWaiting, Options, Pieces};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};

pyo3::create_exception!(
    mend,
    Error,
    PyException,
    "The error of a call. `kind` is a name such as \"TOO_MUCH_LOST\"; the message says what failed and, \
     where possible, what to do next."
);

/// Connects to the cluster of a cluster folder.
///
/// The folder needs mend.toml, ca/ca.pem, and cert.pem and key.pem of the client: in client/ for "admin",
/// which is the default, and in clients/NAME/ for the client NAME. `api` and `control` are HOST:PORT of the
/// coordinator, if they differ from mend.toml; `rack` is this machine's rack; `scheme` decodes lost blocks;
/// `timeout` limits each call, in seconds.
#[pyfunction]
#[pyo3(signature = (folder, *, client=None, api=None, control=None, rack=None, scheme=None, timeout=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
fn connect(
    py: Python<'_>,
    folder: PathBuf,
    client: Option<&str>,
    api: Option<&str>,
    control: Option<&str>,
    rack: Option<String>,
    scheme: Option<&str>,
    timeout: Option<f64>,
) -> PyResult<Client> {
    let time_limit = timeout.map(Duration::try_from_secs_f64).transpose();
    let options = Options {
        client: parsed("client", client)?,
        api: parsed("api", api)?,
        control: parsed("control", control)?,
        rack,
        scheme: parsed("scheme", scheme)?.unwrap_or_default(),
        time_limit: time_limit.map_err(|error| invalid("timeout", error))?,
    };
    let client = waiting(py, |wait| blocking::Connection::connect(&folder, options, wait))?;
    Ok(Client(Handle::new(client)))
}

/// A connection to a cluster. Thread-safe; a context manager.
#[pyclass(frozen, module = "mend")]
struct Client(Handle<blocking::Connection>);

#[pymethods]
impl Client {
    /// Opens the current version of a file. All reads return bytes of this version, even if the file is
    /// replaced.
    fn open(&self, py: Python<'_>, name: &str) -> PyResult<Reader> {
        let client = self.0.get()?;
        let reader = waiting(py, |wait| client.open_file(name, wait))?;
        Ok(Reader(Handle::new(reader)))
    }

    /// Opens a block of a stripe by its index, from 0. The block may be lost: it is then decoded from other
    /// blocks.
    fn open_block(&self, py: Python<'_>, stripe: &str, index: u16) -> PyResult<Reader> {
        let client = self.0.get()?;
        let reader = waiting(py, |wait| client.open_block(stripe, index, wait))?;
        Ok(Reader(Handle::new(reader)))
    }

    /// Releases the client. Its readers stay usable; the connection is closed together with the last of them.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// A file or block that is open for reading. Thread-safe; a context manager.
#[pyclass(frozen, module = "mend")]
struct Reader(Handle<blocking::Reader>);

#[pymethods]
impl Reader {
    /// The size of the file or block in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.0.get()?.size())
    }

    /// Returns `length` bytes from `offset` on, or all bytes from `offset` on.
    #[pyo3(signature = (offset=0, length=None))]
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let reader = self.0.get()?;
        let length = length.unwrap_or_else(|| reader.size().saturating_sub(offset));
        let mut pieces = started(py, &reader, offset, length)?;
        // The range lies within the file, so it is small enough to try to allocate it.
        let bytes = usize::try_from(length).map_err(|error| invalid("length", error))?;
        PyBytes::new_with(py, bytes, |target| {
            let mut filled = 0;
            waiting(py, |wait| {
                while let Some(piece) = pieces.next(wait)? {
                    target[filled..filled + piece.len()].copy_from_slice(&piece);
                    filled += piece.len();
                }
                Ok(())
            })
        })
    }

    /// Fills a writable contiguous buffer, such as a bytearray or an array, with the bytes from `offset` on.
    /// If the call fails, the content of the buffer is unspecified.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let reader = self.0.get()?;
        let target = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
        if target.getattr("readonly")?.extract()? {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        let bytes = target.len()?;
        let mut pieces = started(py, &reader, offset, bytes as u64)?;
        let mut filled = 0;
        while let Some(piece) = waiting(py, |wait| pieces.next(wait))? {
            let end = filled + piece.len();
            let range = PySlice::new(py, filled as isize, end as isize, 1);
            PyBuffer::<u8>::get(&target.get_item(range)?)?.copy_from_slice(py, &piece)?;
            filled = end;
        }
        Ok(filled)
    }

    /// Releases the reader.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// Starts to read `length` bytes from `offset` on.
fn started<'a>(
    py: Python<'_>,
    reader: &'a blocking::Reader,
    offset: u64,
    length: u64,
) -> PyResult<Pieces<'a>> {
    let end = offset.saturating_add(length);
    reader.pieces(offset..end).map_err(|error| raised(py, error))
}

/// An object that can be closed while other threads use it.
struct Handle<T>(Mutex<Option<Arc<T>>>);

impl<T: Send + Sync> Handle<T> {
    fn new(value: T) -> Self {
        Self(Mutex::new(Some(Arc::new(value))))
    }

    fn get(&self) -> PyResult<Arc<T>> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        value.ok_or_else(|| PyValueError::new_err("it is closed"))
    }

    fn close(&self, py: Python<'_>) {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Closing a connection may take a moment.
        py.detach(|| drop(value));
    }
}

/// Runs a call of the library without the GIL. A signal handler that raises an exception, such as the one of
/// Ctrl-C, cancels the call.
fn waiting<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(KeepWaiting<'_>) -> Result<T, blocking::Error> + Send,
) -> PyResult<T> {
    let mut interrupt = None;
    let result = py.detach(|| {
        call(&mut || {
            interrupt = Python::attach(|py| py.check_signals()).err();
            interrupt.is_none()
        })
    });
    match interrupt {
        Some(exception) => Err(exception),
        None => result.map_err(|error| raised(py, error)),
    }
}

/// Converts an error into an exception.
fn raised(py: Python<'_>, error: blocking::Error) -> PyErr {
    if error.kind == ErrorKind::Invalid {
        return PyValueError::new_err(error.message);
    }
    let exception = Error::new_err(error.message);
    match exception.value(py).setattr("kind", error.kind.name()) {
        Ok(()) => exception,
        Err(other) => other,
    }
}

/// Parses an optional text.
fn parsed<T: FromStr<Err: Display>>(name: &str, value: Option<&str>) -> PyResult<Option<T>> {
    value.map(str::parse).transpose().map_err(|error| invalid(name, error))
}

fn invalid(name: &str, error: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {error}"))
}

/// Reads files and blocks of a Mend cluster, also those that are lost.
#[pymodule]
mod _mend {
    #[pymodule_export]
    use super::{Client, Error, Reader, connect};

    /// The version of the library.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
