module functions

go 1.24
