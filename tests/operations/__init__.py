"""Operations over stores that keep the contract, in memory and with a clock that stands still."""
