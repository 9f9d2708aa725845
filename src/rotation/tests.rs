use super::world::World;
use super::*;
