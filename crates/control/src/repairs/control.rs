//! Repairs that are called off, paused and resumed.
