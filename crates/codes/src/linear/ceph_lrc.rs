//! Ceph's lrc plug-in with parameters k, m and l: layers of jerasure's codes.
//!
//! The global layer is jerasure's `reed_sol_van` over all data. The k + m blocks are then divided into groups
//! of l. All groups have the same number of data blocks, and the same number of global parity blocks. A
//! group's local parity block is the XOR of its members. Ceph orders blocks group by group: data, global
//! parity, local parity. Here the data comes first, then the global parity blocks, then the local ones.

use crate::{Matrix, RsFamily, SpecError};

pub(super) fn check(k: usize, m: usize, l: usize) -> Result<(), SpecError> {
    let groups = (k + m).checked_div(l).unwrap_or(0);
    let splits = groups > 0 && groups * l == k + m && k.is_multiple_of(groups) && m.is_multiple_of(groups);
    if !splits || m == 0 {
        return Err(SpecError::CephLrcGroups { k, m, l });
    }
    Ok(())
}

pub(super) fn parity_rows(k: usize, m: usize, l: usize) -> Result<Matrix, SpecError> {
    let globals = RsFamily::Jerasure.parity_rows(k + m, k)?;
    let all = Matrix::identity(k).stacked_on(&globals);
    let members = groups(k, m, l);
    let is_member = |group: usize, block: usize| u8::from(members[group].contains(&block));
    let sums = Matrix::from_fn(members.len(), k + m, is_member);
    Ok(globals.stacked_on(&sums.product(&all)))
}

/// Returns the members of each group: data, global parity blocks, and the local parity block.
pub(super) fn groups(k: usize, m: usize, l: usize) -> Vec<Vec<usize>> {
    let groups = (k + m) / l;
    let part = |group: usize, of: usize| group * of / groups..(group + 1) * of / groups;
    (0..groups)
        .map(|group| {
            let globals = part(group, m).map(|global| k + global);
            part(group, k).chain(globals).chain([k + m + group]).collect()
        })
        .collect()
}
