//! How a code is named in metadata and on the command line.
