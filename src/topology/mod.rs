//! Who is connected to whom: it grows from here, beginning with how a channel call chooses among its members.

pub(crate) mod selection;
