import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;

/** PostgreSQL's JDBC driver, alone and under HikariCP. One action a line; its answer: "ok", or SQLSTATE and texts of the error. */
public class Jdbc {
  private static Connection client;
  private static HikariDataSource pool;

  public static void main(String[] arguments) throws IOException {
    BufferedReader actions = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = actions.readLine()) != null;) {
      String[] words = line.split(" ", 2);
      try {
        act(words[0], words[1]);
        System.out.println("ok");
      } catch (SQLException error) {
        System.out.println(describe(error));
      }
    }
  }

  private static void act(String action, String argument) throws SQLException {
    switch (action) {
      case "connect":
        client = DriverManager.getConnection(argument);
        break;
      case "begin":
        client.setAutoCommit(false);
        execute(client, argument);
        break;
      case "execute":
        execute(client, argument);
        break;
      case "pool":
        HikariConfig settings = new HikariConfig();
        settings.setJdbcUrl(argument);
        settings.setMaximumPoolSize(1);
        settings.setConnectionTimeout(2000);
        pool = new HikariDataSource(settings);
        break;
      case "pooled":
        try (Connection one = pool.getConnection()) {
          execute(one, argument);
        }
        break;
      default:
        throw new IllegalArgumentException(action);
    }
  }

  private static void execute(Connection connection, String sql) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(sql);
    }
  }

  /** The state is that of the innermost cause: a pool wraps what the driver says. */
  private static String describe(SQLException error) {
    String state = error.getSQLState();
    StringBuilder texts = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof SQLException) state = ((SQLException) cause).getSQLState();
      texts.append(' ').append(cause.getMessage());
    }
    return state + texts.toString().replace('\n', ' ');
  }
}
