"""Operations: functions that check a request and turn it into a command, or into reads."""
