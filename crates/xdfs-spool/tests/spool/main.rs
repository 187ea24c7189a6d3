//! The spool by its interface: what was acknowledged survives, and what is wrong is noticed.

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod harm;
#[cfg(test)]
mod incoming;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod life;
#[cfg(test)]
mod power;
#[cfg(test)]
mod scene;
