"""Operations over stores that keep the contract, in memory and with a fixed clock."""
